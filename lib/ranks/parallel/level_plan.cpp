// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/level_plan.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {
namespace {

/// Query rows of one head of a part, all of which see the same number of keys.
struct Work {
  int sequence = 0;
  int64_t head = 0;
  int part = 0;
  int64_t rows = 0, keys = 0;
};

std::vector<Work> work_of(const Levels& levels, const LevelRule& rule, int level,
                          const std::vector<int>& members,
                          const std::vector<LevelSequence>& sequences, int64_t kv_heads) {
  std::vector<Work> all;
  for (int64_t head = 0; head < kv_heads; ++head) {
    if (head > 0 && rule.key_drops.empty()) {  // all heads are alike
      const auto of_head = static_cast<int64_t>(all.size()) / head;
      for (int64_t i = 0; i < of_head; ++i) {
        Work work = all[static_cast<size_t>(i)];
        work.head = head;
        all.push_back(work);
      }
      continue;
    }
    for (size_t sequence = 0; sequence < sequences.size(); ++sequence)
      for (const int part : members) {
        Work work{static_cast<int>(sequence), head, part,
                  kept_rows(rule, level, sequences[sequence][part]), 0};
        for (const int key_part : members)
          work.keys +=
              keys_seen(levels, rule, level, sequences[sequence], part, key_part, head).size();
        if (work.rows > 0 && work.keys > 0) all.push_back(work);
      }
  }
  return all;
}

/// Stretch `index` of `count` of the work, in pairs of query and key. Cuts are between rows.
std::vector<LevelTask> stretch(const std::vector<Work>& work, int64_t index, int64_t count) {
  using Wide = __int128;  // pairs of all heads, times stretches
  Wide all = 0;
  for (const Work& each : work) all += Wide{each.rows} * each.keys;
  const Wide begin = all * index / count, end = all * (index + 1) / count;
  std::vector<LevelTask> tasks;
  Wide before = 0;
  for (const Work& each : work) {
    const auto row_at = [&](Wide pairs) {
      const Wide row = (pairs - before + each.keys - 1) / each.keys;
      return static_cast<int64_t>(std::clamp<Wide>(pairs <= before ? 0 : row, 0, each.rows));
    };
    const RowRange rows{row_at(begin), row_at(end)};
    if (rows.size() > 0) tasks.push_back({each.sequence, each.head, each.part, rows});
    before += Wide{each.rows} * each.keys;
  }
  return tasks;
}

/// The parts of `wanted` that are not in `had`, which becomes their union. `had` is sorted.
std::vector<RowRange> add_rows(std::vector<RowRange>& had, RowRange wanted) {
  std::vector<RowRange> added, joined;
  int64_t next = wanted.begin;
  for (const RowRange& each : had) {
    if (each.end < wanted.begin || each.begin > wanted.end) continue;
    if (each.begin > next) added.push_back({next, each.begin});
    next = std::max(next, each.end);
  }
  if (next < wanted.end) added.push_back({next, wanted.end});
  for (const RowRange& each : had) {
    if (each.end < wanted.begin || each.begin > wanted.end)
      joined.push_back(each);
    else
      wanted = {std::min(wanted.begin, each.begin), std::max(wanted.end, each.end)};
  }
  joined.push_back(wanted);
  std::ranges::sort(joined, {}, &RowRange::begin);
  had = std::move(joined);
  return added;
}

/// What one rank has sent to another of a head of a sequence.
struct Sent {
  int64_t cached = 0, rows = 0;
  std::vector<RowRange> queries;
};

/// What goes to one rank, step by step.
class Destination {
 public:
  Destination(const Levels& levels, const LevelRule& rule,
              const std::vector<LevelSequence>& sequences)
      : levels_(levels), rule_(rule), sequences_(sequences), sent_(levels.ranks()) {}

  /// What `from` sends for these tasks, and did not send before.
  std::vector<LevelPiece> pieces(int from, int level, const std::vector<LevelTask>& tasks) {
    std::map<std::pair<int64_t, int>, LevelPiece> pieces;  // by head and sequence
    for (const LevelTask& task : tasks) {
      const std::pair key(task.head, task.sequence);
      Sent& sent = sent_[from][key];
      const SeenKeys keys =
          keys_seen(levels_, rule_, level, sequences_[task.sequence], task.part, from, task.head);
      LevelPiece piece{task.sequence,
                       task.head,
                       {sent.cached, std::max(sent.cached, keys.cached)},
                       {sent.rows, std::max(sent.rows, keys.rows)},
                       {}};
      if (task.part == from) piece.queries = add_rows(sent.queries, task.rows);
      sent.cached = piece.cached.end, sent.rows = piece.rows.end;
      if (piece.empty()) continue;
      const auto [found, is_new] = pieces.try_emplace(key, piece);
      if (is_new) continue;
      // Keys go on where those of an earlier task of the step end.
      LevelPiece& into = found->second;
      into.cached.end = piece.cached.end, into.rows.end = piece.rows.end;
      into.queries.insert(into.queries.end(), piece.queries.begin(), piece.queries.end());
    }
    std::vector<LevelPiece> all;
    for (auto& [key, piece] : pieces) all.push_back(std::move(piece));
    return all;
  }

 private:
  const Levels& levels_;
  const LevelRule& rule_;
  const std::vector<LevelSequence>& sequences_;
  std::vector<std::map<std::pair<int64_t, int>, Sent>> sent_;  ///< by source
};

void check(const Levels& levels, const std::vector<LevelSequence>& sequences, int64_t kv_heads) {
  PECIA_CHECK(kv_heads >= 1, "{} KV heads", kv_heads);
  for (const LevelSequence& sequence : sequences)
    PECIA_CHECK(std::ssize(sequence) == levels.ranks(), "{} parts of a sequence for {} ranks",
                sequence.size(), levels.ranks());
}

}  // namespace

SeenKeys keys_seen(const Levels& levels, const LevelRule& rule, int level,
                   const LevelSequence& sequence, int query_part, int key_part, int64_t head) {
  const Seen seen = seen_at(levels, rule, level, query_part, key_part);
  const PartTokens& part = sequence[key_part];
  return {seen.cached ? kept_cached(rule, level, part, head) : 0,
          seen.rows ? kept_row_keys(rule, level, part, head) : 0};
}

std::vector<LevelStep> head_parallel_steps(const Levels& levels, const LevelRule& rule,
                                           const std::vector<LevelSequence>& sequences,
                                           int64_t kv_heads) {
  check(levels, sequences, kv_heads);
  Destination here(levels, rule, sequences);
  std::vector<LevelStep> steps;
  for (int level = 2; level <= levels.count(); ++level) {
    LevelStep& step = steps.emplace_back();
    step.level = level;
    step.arriving.resize(levels.ranks()), step.leaving.resize(levels.ranks()),
        step.elsewhere.resize(levels.ranks());
    for (int segment = 0; segment <= levels.segment(level, levels.ranks() - 1); ++segment) {
      const std::vector<int> members = levels.members(level, segment);
      const std::vector<LevelTask> tasks =
          stretch(work_of(levels, rule, level, members, sequences, kv_heads), 0, 1);
      for (const int from : members) step.arriving[from] = here.pieces(from, level, tasks);
      step.tasks.insert(step.tasks.end(), tasks.begin(), tasks.end());
    }
  }
  return steps;
}

std::vector<LevelStep> level_steps(const Levels& levels, const LevelRule& rule,
                                   const std::vector<LevelSequence>& sequences, int64_t kv_heads,
                                   const std::function<int(int level)>& micro, int rank) {
  const int ranks = levels.ranks();
  PECIA_CHECK(0 <= rank && rank < ranks, "rank {} of {}", rank, ranks);
  check(levels, sequences, kv_heads);
  std::vector<Destination> destinations(ranks, Destination(levels, rule, sequences));
  std::vector<LevelStep> steps;
  for (int level = 2; level <= levels.count(); ++level) {
    const int segment = levels.segment(level, rank);
    const std::vector<Work> work =
        work_of(levels, rule, level, levels.members(level, segment), sequences, kv_heads);
    const std::vector<int>& order = levels.deal_order(level, segment, rule.geometry);
    const int parts = micro(level);
    PECIA_CHECK(parts >= 1, "level {} in {} micro-partitions", level, parts);
    for (int part = 0; part < parts; ++part) {
      LevelStep& step = steps.emplace_back();
      step.level = level;
      step.arriving.resize(ranks), step.leaving.resize(ranks), step.elsewhere.resize(ranks);
      for (size_t place = 0; place < order.size(); ++place) {
        const int to = order[place];
        const auto stretches = static_cast<int64_t>(order.size()) * parts;
        const std::vector<LevelTask> tasks =
            stretch(work, static_cast<int64_t>(place) * parts + part, stretches);
        if (to == rank) {
          step.tasks = tasks;
          for (const int from : order)
            step.arriving[from] = destinations[to].pieces(from, level, tasks);
          continue;
        }
        step.leaving[to] = destinations[to].pieces(rank, level, tasks);
        for (const LevelTask& task : tasks)
          if (task.part == rank) step.elsewhere[to].push_back(task);
      }
    }
  }
  return steps;
}

}  // namespace pecia::parallel
