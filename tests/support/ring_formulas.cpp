// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ring_formulas.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "lib/ranks/parallel/halo.hpp"

namespace pecia::test {

using parallel::AttentionExchange;
using parallel::PassSequence;
using parallel::SequenceId;
using parallel::Team;

namespace {

bool holds_keys(const parallel::KvMap& map, SequenceId sequence, int instance) {
  const std::vector<int> holders = map.holders(sequence);
  return std::find(holders.begin(), holders.end(), instance) != holders.end();
}

/// Sequences with keys that are wanted.
std::set<SequenceId> seen_in(const parallel::TeamPass& pass, const parallel::KvMap& map) {
  std::set<SequenceId> seen;
  for (const PassSequence& rows : pass.rows)
    for (const SequenceId member : map.lineage(rows.sequence)) seen.insert(member);
  return seen;
}

/// (N − 1) messages of all the keys that are wanted, each sequence's padded to the most that any
/// virtual rank holds of it.
int64_t padded_pass_kv(const parallel::TeamPass& pass, const parallel::KvMap& map,
                       const RingShape& shape) {
  int64_t tokens = 0;
  for (const SequenceId sequence : seen_in(pass, map)) {
    int64_t most = 0;
    for (const int instance : pass.team.instances)
      for (int virtual_rank = 0; virtual_rank < map.virtual_ranks(); ++virtual_rank)
        most = std::max(most, map.held(sequence, instance, virtual_rank));
    tokens += map.virtual_ranks() * most;
  }
  return (pass.team.size() - 1) * tokens * shape.kv_bytes_per_token;
}

/// The first tokens of a sequence at an instance that no row from the end of `before` on sees, in
/// whole blocks.
int64_t gone(const parallel::KvMap& before, SequenceId sequence, int instance,
             const RingShape& shape) {
  if (shape.recent_block == 0 || shape.window == 0 || !before.contains(sequence)) return 0;
  int64_t tokens = 0;
  for (const auto& range : before.ranges(sequence, instance))
    for (int64_t i = 0; i < range.count; ++i)
      tokens += range.position(i) < shape.window.first_seen(before.length(sequence)) ? 1 : 0;
  return tokens / shape.recent_block * shape.recent_block;
}

/// The wanted keys of every instance but the next one in the ring, where they are last.
int64_t pass_kv(const parallel::TeamPass& pass, const parallel::KvMap& map,
                const parallel::KvMap& before, int rank, const RingShape& shape) {
  const int size = pass.team.size();
  int64_t tokens = 0;
  for (int other = 0; other < size; ++other) {
    if (other == (rank + 1) % size) continue;
    const int instance = pass.team.instances[other];
    for (const SequenceId sequence : seen_in(pass, map)) {
      const auto rows = std::find_if(pass.rows.begin(), pass.rows.end(), [&](const auto& each) {
        return each.sequence == sequence && pass.placement(sequence) != nullptr;
      });
      tokens += rows == pass.rows.end()
                    ? map.held(sequence, instance) - gone(before, sequence, instance, shape)
                    : before.held(sequence, instance) + num_rows({*rows}, pass.team, other);
    }
  }
  return tokens * shape.kv_bytes_per_token;
}

/// Each key that a rank has goes once to each other rank with a row that sees it.
int64_t halo(const parallel::TeamPass& pass, const parallel::KvMap& map, int rank,
             const RingShape& shape) {
  int64_t tokens = 0;
  for (int other = 0; other < pass.team.size(); ++other) {
    std::map<SequenceId, std::set<int64_t>> seen;  // positions
    for (const PassSequence& rows : pass.rows)
      for (const SequenceId member : map.lineage(rows.sequence))
        for (const auto& range : rows_of(rows, pass.team, other))
          for (int64_t row = range.begin; row < range.end; ++row)
            for (int64_t key = row; key >= 0 && shape.window.sees(row, key); --key)
              seen[member].insert(key);
    if (other == rank) continue;
    for (const auto& [sequence, positions] : seen)
      for (const auto& range : map.ranges(sequence, pass.team.instances[rank]))
        for (int64_t i = 0; i < range.count; ++i)
          tokens += positions.contains(range.position(i)) ? 1 : 0;
  }
  return tokens * shape.kv_bytes_per_token;
}

/// Pairs of a row and a rank with keys that it sees: rows of this rank and other ranks, or rows of
/// others and this rank.
int64_t rows_that_see(const parallel::TeamPass& pass, const parallel::KvMap& map, int instance,
                      int rank, bool of_this_rank, kernels::Window window) {
  int64_t count = 0;
  for (int other = 0; other < pass.team.size(); ++other) {
    if (other == rank) continue;
    const int rows_at = of_this_rank ? rank : other;
    const int keys_at = of_this_rank ? pass.team.instances[other] : instance;
    for (const PassSequence& rows : pass.rows)
      for (const auto& range : rows_of(rows, pass.team, rows_at))
        for (int64_t row = range.begin; row < range.end; ++row) {
          bool sees = false;
          for (const SequenceId member : map.lineage(rows.sequence))
            for (const auto& keys : map.ranges(member, keys_at))
              for (int64_t i = 0; i < keys.count; ++i) sees |= window.sees(row, keys.position(i));
          count += sees ? 1 : 0;
        }
  }
  return count;
}

/// Whether keys go straight to the ranks that see them.
bool goes_straight(const parallel::TeamPass& pass, const parallel::KvMap& map,
                   const RingShape& shape) {
  if (shape.window == 0 || !pass.placements.empty()) return false;
  std::vector<int64_t> held;
  for (const int instance : pass.team.instances) {
    held.push_back(0);
    for (const SequenceId sequence : seen_in(pass, map))
      held.back() += map.held(sequence, instance);
  }
  return parallel::halo_goes_straight(pass.rows, pass.team, shape.window, held);
}

}  // namespace

int64_t ring_bytes(const std::vector<parallel::TeamPass>& teams, const parallel::KvMap& map,
                   int instance, const RingShape& shape) {
  return ring_bytes(teams, map, map, instance, shape);
}

int64_t ring_bytes(const std::vector<parallel::TeamPass>& teams, const parallel::KvMap& map,
                   const parallel::KvMap& before, int instance, const RingShape& shape) {
  const auto own = team_of(teams, instance);
  if (!own) return 0;
  const auto& [team, rows, placements] = teams[*own];
  const int size = team.size(), rank = team.index_of(instance).value();
  if (team.ring == AttentionExchange::pass_kv)
    return shape.layout_invariant ? padded_pass_kv(teams[*own], map, shape)
           : goes_straight(teams[*own], map, shape)
               ? halo(teams[*own], map, rank, shape)
               : pass_kv(teams[*own], map, before, rank, shape);
  const int64_t query = shape.num_heads * shape.head_dim * 4;  // fp32
  const int64_t home = query + shape.num_heads * 4;            // with its log-sum
  if (shape.window > 0 && !shape.layout_invariant)
    return rows_that_see(teams[*own], map, instance, rank, true, shape.window) * query +
           rows_that_see(teams[*own], map, instance, rank, false, shape.window) * home;
  int64_t bytes = 0;
  for (const PassSequence& sequence : rows)
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      const int64_t own_rows = num_rows({sequence}, team, rank);
      const int64_t its_rows = num_rows({sequence}, team, other);
      if (team.ring == AttentionExchange::broadcast_q && !shape.layout_invariant) {
        if (holds_keys(map, sequence.sequence, team.instances[other])) bytes += own_rows * query;
        if (holds_keys(map, sequence.sequence, instance)) bytes += its_rows * home;
        continue;
      }
      // Every query visits everyone: round the ring all but those of the next rank, which came
      // last, are passed on; where layout is invariant each sends its own straight to the others.
      const bool passed_on = other != (rank + 1) % size;
      bytes += shape.layout_invariant ? own_rows * query : passed_on ? its_rows * query : 0;
      bytes += its_rows * home;
    }
  if (team.ring == AttentionExchange::pass_q && !shape.layout_invariant && size > 1)
    for (const PassSequence& sequence : rows) bytes += num_rows({sequence}, team, rank) * query;
  return bytes;
}

}  // namespace pecia::test
