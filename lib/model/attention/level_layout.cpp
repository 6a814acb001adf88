// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_layout.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace pecia::attention {

using parallel::LevelPiece;
using parallel::LevelStep;
using parallel::LevelTask;
using parallel::RowRange;

namespace {

constexpr int64_t after_all_keys = std::numeric_limits<int64_t>::max() / 2;

/// Room in the arenas `here` for what comes from one rank of a head of a sequence.
struct Room {
  int64_t cached = 0, rows = 0;  ///< most that any step needs
  RowRange queries{std::numeric_limits<int64_t>::max(), 0};
  int64_t first_key = 0, first_query = 0;

  int64_t cached_at(int64_t token) const { return first_key + token; }
  int64_t row_at(int64_t token) const { return first_key + cached + token; }
  int64_t query_at(int64_t row) const { return first_query + row - queries.begin; }
};
using Rooms = std::map<std::tuple<int, int, int64_t>, Room>;  // by rank, sequence, head

Rooms rooms_of(const std::vector<LevelStep>& steps, LevelLayout& layout) {
  Rooms rooms;
  for (const LevelStep& step : steps)
    for (size_t from = 0; from < step.arriving.size(); ++from)
      for (const LevelPiece& piece : step.arriving[from]) {
        Room& room = rooms[{static_cast<int>(from), piece.sequence, piece.head}];
        room.cached = std::max(room.cached, piece.cached.end);
        room.rows = std::max(room.rows, piece.rows.end);
        for (const RowRange& rows : piece.queries)
          room.queries = {std::min(room.queries.begin, rows.begin),
                          std::max(room.queries.end, rows.end)};
      }
  for (auto& [key, room] : rooms) {
    room.first_key = layout.keys_here, room.first_query = layout.queries_here;
    layout.keys_here += room.cached + room.rows;
    layout.queries_here += std::max<int64_t>(0, room.queries.size());
  }
  return rooms;
}

void add(std::vector<LevelLayout::Pick>& picks, int part, const LevelPiece& piece,
         const RowRange& tokens, int64_t to) {
  if (tokens.size() > 0) picks.push_back({piece.sequence, part, piece.head, tokens, to});
}

}  // namespace

LevelLayout lay_out(const parallel::Levels& levels, const parallel::LevelRule& rule,
                    const std::vector<parallel::LevelSequence>& sequences,
                    const std::vector<LevelStep>& steps, const parallel::PartsHere& here,
                    int64_t head_dim) {
  LevelLayout layout;
  layout.levels = levels.count();
  const Rooms rooms = rooms_of(steps, layout);
  layout.positions.assign(layout.queries_here, after_all_keys);
  for (const LevelStep& from_plan : steps) {
    LevelLayout::Step& step = layout.steps.emplace_back();
    step.level = from_plan.level;
    for (int other = 0; other < levels.ranks(); ++other) {
      for (const LevelPiece& piece : from_plan.leaving[other]) {
        const auto leave = [&](std::vector<LevelLayout::Pick>& picks,
                               std::vector<LevelLayout::Move>& moves, const RowRange& tokens,
                               int64_t& end) {
          add(picks, here.first, piece, tokens, end);
          moves.push_back({other, end, tokens.size()});
          end += tokens.size();
        };
        if (piece.cached.size() > 0)
          leave(step.cached_out, step.keys_leaving, piece.cached, layout.keys_out);
        if (piece.rows.size() > 0)
          leave(step.rows_out, step.keys_leaving, piece.rows, layout.keys_out);
        for (const RowRange& rows : piece.queries)
          leave(step.queries_out, step.queries_leaving, rows, layout.queries_out);
      }
      for (const LevelPiece& piece : from_plan.arriving[other]) {
        const Room& room = rooms.at({other, piece.sequence, piece.head});
        if (here.has(other)) {
          add(step.cached_here, other, piece, piece.cached, room.cached_at(piece.cached.begin));
          add(step.rows_here, other, piece, piece.rows, room.row_at(piece.rows.begin));
          for (const RowRange& rows : piece.queries)
            add(step.queries_here, other, piece, rows, room.query_at(rows.begin));
          continue;
        }
        const auto arrive = [&](std::vector<LevelLayout::Move>& moves, int64_t begin,
                                int64_t count) {
          if (count > 0) moves.push_back({other, begin, count});
        };
        arrive(step.keys_arriving, room.cached_at(piece.cached.begin), piece.cached.size());
        arrive(step.keys_arriving, room.row_at(piece.rows.begin), piece.rows.size());
        for (const RowRange& rows : piece.queries)
          arrive(step.queries_arriving, room.query_at(rows.begin), rows.size());
      }
      for (const LevelTask& task : from_plan.elsewhere[other]) {
        step.from_others.push_back({task.sequence, task.part, task.head, task.rows, layout.home});
        step.outputs_arriving.push_back({other, layout.home, task.rows.size()});
        layout.home += task.rows.size();
      }
    }
    for (const LevelTask& task : from_plan.tasks) {
      const Room& own = rooms.at({task.part, task.sequence, task.head});
      const int64_t query = own.query_at(task.rows.begin);
      const int64_t output = layout.output_at(step.level, query);
      if (here.has(task.part))
        step.from_here.push_back({task.sequence, task.part, task.head, task.rows, output});
      else
        step.outputs_leaving.push_back({task.part, output, task.rows.size()});
      kernels::AttentionItem item{query, task.rows.size(), std::ssize(step.runs), 0};
      int64_t keys = 0;
      for (const int from : levels.members(step.level, levels.segment(step.level, task.part))) {
        const parallel::SeenKeys seen =
            keys_seen(levels, rule, step.level, sequences[task.sequence], task.part, from);
        if (seen.size() == 0) continue;
        const Room& room = rooms.at({from, task.sequence, task.head});
        const auto run = [&](int64_t begin, int64_t count) {
          if (count > 0) step.runs.push_back({begin * head_dim, 0, count, 0});
        };
        run(room.cached_at(0), seen.cached);
        run(room.row_at(0), seen.rows);
        keys += seen.size();
      }
      item.num_runs = std::ssize(step.runs) - item.first_run;
      step.items.push_back(item);
      step.pairs += static_cast<double>(task.rows.size()) * static_cast<double>(keys);
    }
  }
  return layout;
}

}  // namespace pecia::attention
