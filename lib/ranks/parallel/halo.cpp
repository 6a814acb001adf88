// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/halo.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::parallel {

using kernels::Window;

namespace {

/// The same tokens in ascending runs that do not touch each other.
std::vector<IndexRun> joined(std::vector<IndexRun> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const IndexRun& a, const IndexRun& b) { return a.begin < b.begin; });
  std::vector<IndexRun> all;
  for (const IndexRun& run : runs) {
    if (all.empty() || run.begin > all.back().begin + all.back().count) {
      all.push_back(run);
      continue;
    }
    IndexRun& last = all.back();
    last.count = std::max(last.count, run.begin + run.count - last.begin);
  }
  return all;
}

}  // namespace

std::vector<IndexRun> seen_through(Window window, const std::vector<GlobalRange>& rows,
                                   const std::vector<StridedRange>& keys) {
  PECIA_CHECK(window, "a window of {} tokens", window.tokens);
  std::vector<IndexRun> found;
  int64_t before = 0;
  for (const StridedRange& range : keys) {
    for (const GlobalRange& seeing : rows) {
      if (seeing.size() <= 0) continue;
      const IndexRun run = indices_between(range, window.first_seen(seeing.begin), seeing.end);
      if (run.count > 0) found.push_back({before + run.begin, run.count});
    }
    before += range.count;
  }
  return joined(std::move(found));
}

std::vector<IndexRun> rows_that_see(Window window, const std::vector<GlobalRange>& rows,
                                    const std::vector<StridedRange>& keys) {
  PECIA_CHECK(window, "a window of {} tokens", window.tokens);
  std::vector<IndexRun> found;
  int64_t before = 0;
  for (const GlobalRange& seeing : rows) {
    if (seeing.size() <= 0) continue;
    for (const StridedRange& range : keys) {
      const auto [first, count] =
          indices_between(range, window.first_seen(seeing.begin), seeing.end);
      for (int64_t key = first; key < first + count;) {
        // Rows from here on see this key, and then others whose sight begins where its ends.
        const int64_t begin = range.position(key);
        const int64_t next =
            key + (window.end_of_sight(begin) - begin - 1) / range.stride + 1;  // beyond its sight
        const int64_t last = range.position(std::min(next, first + count) - 1);
        const int64_t from = std::max(begin, seeing.begin);
        const int64_t end = std::min(window.end_of_sight(last), seeing.end);
        found.push_back({before + from - seeing.begin, end - from});
        key = next;
      }
    }
    before += seeing.size();
  }
  return joined(std::move(found));
}

std::vector<StridedRange> positions_of(const std::vector<IndexRun>& runs,
                                       const std::vector<StridedRange>& keys) {
  std::vector<StridedRange> positions;
  int64_t before = 0;
  auto run = runs.begin();
  for (const StridedRange& range : keys) {
    const int64_t end = before + range.count;
    for (; run != runs.end() && run->begin < end; ++run) {
      const int64_t first = std::max(run->begin, before);
      const int64_t last = std::min(run->begin + run->count, end);
      positions.push_back({range.position(first - before), last - first, range.stride});
      if (run->begin + run->count > end) break;  // the next range has the rest
    }
    before = end;
  }
  PECIA_CHECK(runs.empty() || runs.back().begin + runs.back().count <= before,
              "tokens up to {} of {}", runs.back().begin + runs.back().count, before);
  return positions;
}

int64_t count_tokens(const std::vector<IndexRun>& runs) {
  int64_t tokens = 0;
  for (const IndexRun& run : runs) tokens += run.count;
  return tokens;
}

Halo halo_of(const std::vector<HaloSequence>& sequences, int ranks, int rank, Window window) {
  Halo halo;
  halo.leaving.resize(ranks), halo.coming.resize(ranks);
  for (int other = 0; other < ranks; ++other)
    for (const HaloSequence& sequence : sequences) {
      auto& leaving = halo.leaving[other].emplace_back();
      auto& coming = halo.coming[other].emplace_back();
      if (other == rank) continue;
      leaving = seen_through(window, sequence.rows.at(other), sequence.keys.at(rank));
      coming = seen_through(window, sequence.rows.at(rank), sequence.keys.at(other));
    }
  return halo;
}

bool halo_goes_straight(const std::vector<PassSequence>& pass, const Team& team, Window window,
                        const std::vector<int64_t>& held) {
  PECIA_CHECK(window && std::ssize(held) == team.size(), "a window of {}, {} of {} ranks",
              window.tokens, held.size(), team.size());
  if (team.size() <= 3) return true;
  const int64_t all = std::accumulate(held.begin(), held.end(), int64_t{0});
  for (int rank = 0; rank < team.size(); ++rank) {
    int64_t needed = 0;  // at most
    for (const PassSequence& sequence : pass)
      for (const GlobalRange& rows : rows_of(sequence, team, rank))
        needed += rows.begin - std::max<int64_t>(0, window.first_seen(rows.begin));
    if (2 * needed > all - held[rank]) return false;
  }
  return true;
}

}  // namespace pecia::parallel
