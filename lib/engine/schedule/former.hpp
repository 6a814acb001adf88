// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Forms passes: which rows of which sequences, on which instances. Once a pass is formed, the state
/// has its tokens as cached, where sequences have slots now, what instances do, and no more news.

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "lib/engine/schedule/decision.hpp"
#include "lib/engine/schedule/pass_budget.hpp"
#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

class Former {
 public:
  virtual ~Former() = default;

  /// The next pass of instances that are in none. Absent: nothing can begin now, or would end in
  /// time. `prompts`: what could be read on, in the order in which it is to be read.
  virtual std::optional<Plan> form(SchedulerState& state, const Selection& prompts,
                                   const PassBudget& budget, double now) = 0;

  /// What travels for the chunks of the last pass; empty where that is fixed.
  const std::vector<ChunkRing>& chunk_rings() const { return chunk_rings_; }
  /// What was decided for the last pass, where teams change.
  const std::vector<Decision>& decisions() const { return decisions_; }
  /// How often a team that decodes has grown.
  int64_t scale_ups() const { return scale_ups_; }

 protected:
  /// A pass of one team while it is formed.
  struct Pass {
    SchedulerState& state;
    const PassBudget& budget;
    double now;
    Plan plan;
    std::vector<double> busy_until = {};  ///< by instance, where teams change

    parallel::Team& team() { return plan.teams.front(); }
  };
  /// How far a pass reads prompts.
  struct Reading {
    int64_t batch;       ///< chunks end at multiples of this, in tokens
    int64_t most;        ///< new tokens of the pass
    bool cut = false;    ///< chunks end before that, too, since the pass is to end early
    bool whole = false;  ///< but for the first prompt, none is read in part
  };
  /// What travels for a chunk. `decision`: where rule B chose it.
  struct Exchange {
    parallel::AttentionExchange ring;
    std::optional<parallel::RingDecision> decision = {};
  };

  /// `virtual_ranks`: PassSequence::virtual_ranks of all rows.
  explicit Former(int32_t virtual_ranks) : virtual_ranks_(virtual_ranks) {}

  /// Plans the next chunk of each of these prompts in turn, as long as the chunks fit and want the
  /// same to travel as the first. The first chunk always fits, unless the pass has decode rows; these
  /// end, so no prompt waits for ever.
  void read(Pass& pass, const Selection& prompts, const Reading& reading);
  virtual Exchange exchange_of(const SchedulerState& state, const parallel::PassSequence& chunk,
                               parallel::RingLoad riders) const = 0;
  /// Says where the chunk's keys stay, and notes the mode in the sequence's result. `last`: it ends
  /// the prompt.
  virtual void place(Pass& pass, ActiveSequence& sequence, PlanItem& chunk, bool last) = 0;

  /// Tokens of the prompt's next chunk, as it would be read in passes of `batch` tokens.
  static int64_t tokens_of_chunk(const SchedulerLimits& limits, const ActiveSequence& sequence,
                                 int64_t batch);
  /// The sequence's next tokens to read, `owner` as in PassSequence.
  PlanItem chunk_of(const SchedulerState& state, const ActiveSequence& sequence, int64_t count,
                    int32_t owner) const;
  /// The sequence's next token of its answer, on the team's instance at the place `owner`, after the
  /// tokens that it computes again. Where these are `most` or more, or the turn has ended, the item has
  /// no other, and nothing is sampled.
  PlanItem token_of(const SchedulerState& state, const ActiveSequence& sequence, int32_t owner,
                    int64_t most = std::numeric_limits<int64_t>::max()) const;
  /// Makes the pass read the sequence's next `count` tokens from its save. If the save is damaged,
  /// they are computed as the plan says.
  void restore(Pass& pass, ActiveSequence& sequence, int64_t count, int32_t owner);
  static void add(Pass& pass, ActiveSequence& sequence, PlanItem item);
  static void set_sharding(Pass& pass, bool prefills);

  std::vector<ChunkRing> chunk_rings_;
  std::vector<Decision> decisions_;
  int64_t scale_ups_ = 0;

 private:
  int32_t virtual_ranks_;
};

/// The Former for these limits: one team of all instances, or teams that change.
std::unique_ptr<Former> make_former(const SchedulerLimits& limits);

}  // namespace pecia::schedule
