// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many KV slots requests need: on each rank, or, where teams change, on all instances together.

#include <cstdint>
#include <span>

#include "lib/engine/schedule/scheduler_limits.hpp"
#include "lib/engine/schedule/token_run.hpp"
#include "lib/work/batch/request.hpp"

namespace pecia::schedule {

class SlotNeeds {
 public:
  explicit SlotNeeds(const SchedulerLimits& limits);

  /// The fewest slots with which the request can run: a chain, or a shared prefix and the largest of
  /// its open branches.
  int64_t of_request(const batch::Request& request) const;
  /// Of the turn with what comes before it, if nothing else runs.
  int64_t alone(const batch::Request& request, size_t turn) const;
  /// Of a fork's first turn.
  int64_t of_prefix(const batch::Request& request) const;
  /// Of the branch that begins with this turn, beside the shared prefix.
  int64_t of_branch(const batch::Request& request, size_t turn) const;
  /// Of the tokens that are still to be generated, if no rank gets more than its share, or where they
  /// stay on one rank.
  int64_t of_answer(const batch::Turn& turn) const;
  /// Of this number of generated tokens.
  int64_t of_generated(int64_t tokens) const;
  /// Of tokens that are computed again as they were.
  int64_t of_run(const TokenRun& run) const;

  /// The same, of what begins first and without its answer: a chain's first open turn with all that
  /// is read before it, or a fork's first turn.
  int64_t of_beginning(const batch::Request& request) const;
  /// Of the first open turn of the branch that begins with this turn, without its answer.
  int64_t of_branch_beginning(const batch::Request& request, size_t turn) const;
  /// Of a later turn of a sequence, without its answer, with `unfed` tokens that are read before it.
  int64_t of_later_turn(const batch::Turn& turn, int64_t unfed) const;

 private:
  enum class Cut { nowhere, in_units, in_batches };  ///< where prompts are cut into chunks

  int64_t of_feed(int64_t tokens) const;
  int64_t of_feed(int64_t stem_end, int64_t tokens) const;
  int64_t of_first_turn(std::span<const batch::Turn> turns) const;
  int64_t of_turns(std::span<const batch::Turn> turns) const;

  Cut cut_;
  int64_t unit_, batch_;
  /// Ranks that slots are shared out to: the ring's, or the virtual ranks, of which each rank plays
  /// an equal number. Where teams change, slots are counted in all, as of one rank.
  int ranks_, virtual_ranks_;
  bool layout_invariant_;
  int64_t cut_slots_;  ///< of a cut where a state is restored
};

}  // namespace pecia::schedule
