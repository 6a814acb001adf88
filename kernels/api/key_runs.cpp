// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/key_runs.hpp"

#include <algorithm>

namespace pecia::kernels {
namespace {

/// The first key of the run at this position or a later one.
int64_t first_at_least(const KeyRun& run, int64_t position) {
  const int64_t distance = position - run.position;
  if (distance <= 0) return 0;
  const int64_t steps = run.stride == 1 ? distance : (distance + run.stride - 1) / run.stride;
  return std::min(run.num_keys, steps);
}

}  // namespace

int64_t num_keys(std::span<const KeyRun> runs) {
  int64_t count = 0;
  for (const KeyRun& run : runs) count += run.num_keys;
  return count;
}

int64_t count_seen(const KeyRun& run, int64_t query, Window window) {
  const int64_t gone = window ? first_at_least(run, window.first_seen(query)) : 0;
  return std::max<int64_t>(0, first_at_least(run, query + 1) - gone);
}

KeyRange seen_keys(std::span<const KeyRun> runs, int64_t first, int64_t last, Window window) {
  KeyRange seen;
  int64_t before = 0;
  for (const KeyRun& run : runs) {
    const int64_t begin = window ? first_at_least(run, window.first_seen(first)) : 0;
    const int64_t end = first_at_least(run, last + 1);
    if (begin < end) {
      if (seen.end == 0) seen.begin = before + begin;
      seen.end = before + end;
    }
    before += run.num_keys;
  }
  return seen;
}

KeyPlace place_of(std::span<const KeyRun> runs, int64_t index) {
  KeyPlace place = {0, index};
  for (const KeyRun& run : runs) {
    if (place.key < run.num_keys) break;
    place.key -= run.num_keys;
    ++place.run;
  }
  return place;
}

}  // namespace pecia::kernels
