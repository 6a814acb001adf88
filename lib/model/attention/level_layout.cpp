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

/// Room in the arenas for what comes from one rank of a head of a sequence.
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

/// The same, at the end of a message that has `count` entries.
void append(std::vector<LevelLayout::Pick>& picks, int part, const LevelPiece& piece,
            const RowRange& tokens, int64_t& count) {
  add(picks, part, piece, tokens, count);
  count += tokens.size();
}
void append(std::vector<LevelLayout::Entries>& entries, int64_t begin, const RowRange& tokens,
            int64_t& count) {
  if (tokens.size() > 0) entries.push_back({begin, tokens.size()});
  count += tokens.size();
}

/// The message to or from `rank` among several, or a new one.
template <typename Message>
Message& message_of(std::vector<Message>& messages, int rank) {
  const auto found = std::ranges::find(messages, rank, &Message::rank);
  if (found != messages.end()) return *found;
  messages.emplace_back().rank = rank;
  return messages.back();
}

/// Own tokens that leave in a step.
void lay_out_leaving(const LevelStep& from_plan, int own_part, LevelLayout::Step& step) {
  for (int other = 0; other < std::ssize(from_plan.leaving); ++other)
    for (const LevelPiece& piece : from_plan.leaving[other]) {
      LevelLayout::TokensOut& out = message_of(step.tokens_out, other);
      append(out.cached, own_part, piece, piece.cached, out.num_keys);
      append(out.rows, own_part, piece, piece.rows, out.num_keys);
      for (const RowRange& rows : piece.queries)
        append(out.queries, own_part, piece, rows, out.num_queries);
    }
}

/// Tokens that the step needs in the arenas, from here and from others.
void lay_out_arriving(const LevelStep& from_plan, const Rooms& rooms,
                      const parallel::PartsHere& here, LevelLayout::Step& step) {
  for (int other = 0; other < std::ssize(from_plan.arriving); ++other)
    for (const LevelPiece& piece : from_plan.arriving[other]) {
      const Room& room = rooms.at({other, piece.sequence, piece.head});
      const int64_t cached_at = room.cached_at(piece.cached.begin),
                    row_at = room.row_at(piece.rows.begin);
      if (here.has(other)) {
        add(step.cached_here, other, piece, piece.cached, cached_at);
        add(step.rows_here, other, piece, piece.rows, row_at);
        for (const RowRange& rows : piece.queries)
          add(step.queries_here, other, piece, rows, room.query_at(rows.begin));
        continue;
      }
      LevelLayout::TokensIn& in = message_of(step.tokens_in, other);
      append(in.keys, cached_at, piece.cached, in.num_keys);
      append(in.keys, row_at, piece.rows, in.num_keys);
      for (const RowRange& rows : piece.queries)
        append(in.queries, room.query_at(rows.begin), rows, in.num_queries);
    }
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
    lay_out_leaving(from_plan, here.first, step);
    lay_out_arriving(from_plan, rooms, here, step);
    for (int other = 0; other < levels.ranks(); ++other)
      for (const LevelTask& task : from_plan.elsewhere[other]) {
        LevelLayout::ResultsIn& in = message_of(step.results_in, other);
        in.rows.push_back({task.sequence, task.part, task.head, task.rows, in.count});
        in.count += task.rows.size();
      }
    for (const LevelTask& task : from_plan.tasks) {
      const Room& own = rooms.at({task.part, task.sequence, task.head});
      const int64_t query = own.query_at(task.rows.begin);
      const int64_t output = layout.output_at(step.level, query);
      if (here.has(task.part)) {
        step.from_here.push_back({task.sequence, task.part, task.head, task.rows, output});
      } else {
        LevelLayout::ResultsOut& out = message_of(step.results_out, task.part);
        append(out.outputs, output, task.rows, out.count);
      }
      kernels::AttentionItem item{query, task.rows.size(), std::ssize(step.runs), 0};
      int64_t keys = 0;
      for (const int from : levels.members(step.level, levels.segment(step.level, task.part))) {
        const parallel::SeenKeys seen = keys_seen(
            levels, rule, step.level, sequences[task.sequence], task.part, from, task.head);
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
