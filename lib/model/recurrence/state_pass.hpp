// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The states of recurrent layers in a pass, as one rank sees them (ranks/parallel/state_route.hpp):
/// which of its rows go through which state in which round, and what comes from other ranks before.
///
/// Rows of an answer after its next token were drafted, and may be taken back. The rank that has the
/// sequence's state before such a pass keeps it until the sequence's next pass.

#include <functional>
#include <span>
#include <vector>

#include "kernels/api/state_rows.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/pass_rows.hpp"
#include "lib/model/recurrence/recurrent_states.hpp"
#include "lib/ranks/parallel/state_route.hpp"

namespace pecia::recurrence {

class StatePass {
 public:
  /// All references outlive this object. `costs`: by which heads are grouped.
  StatePass(const attention::Compute& compute, const parallel::WalkCosts& costs,
            RecurrentStates& states);

  /// Begins a pass: gives its sequences slots, and takes them from sequences that have gone on
  /// elsewhere or have ended. `rows` and `ring`, the ring of the pass's team, outlive the pass. Throws
  /// InvalidArgument where an instance outside of the team has a sequence's state.
  void begin(const attention::PassRows& rows, comm::Communicator& ring);

  int num_rounds() const { return static_cast<int>(rounds_.size()); }
  /// This rank's rows in a round, with slots of RecurrentStates.
  const std::vector<kernels::StateRows>& rows(int round) const { return own_[round]; }

  /// Begins a recurrent layer, counted among these: states that begin here are zero, or what their
  /// parents have, or what is kept.
  void begin_layer(int64_t layer);
  /// Collective over the ring: tails that are the last rows of long enough segments go to the ranks of
  /// the segments after these, all at once. `rows` are what the convolution sees of this rank's rows:
  /// columns that lie in tails one after the other.
  void exchange_tails(std::span<const TensorView> rows);
  /// Collective over the ring: the tails that this rank's rows of the round need are in their slots
  /// afterwards. Call it for the rounds in their order, after exchange_tails, when the rows of the
  /// rounds before have gone through.
  void bring_tails(int round);

  /// Collective over the ring: calls take_in(round, heads) for all rounds and groups of heads, when the
  /// matrices of these heads have come to this rank, if it has rows there.
  void walk(const std::function<void(int, const parallel::HeadGroup&)>& take_in);
  /// How many groups there are in the pass.
  int num_groups() const { return groups_; }
  /// One of this rank's rows of a round, each alone, with state 0: for ops of one slot's heads.
  std::span<const kernels::StateRows> alone(int round, size_t index) const {
    return std::span(alone_[round]).subspan(index, 1);
  }
  /// Of these rows' slot and these heads: [1, heads, key_dim, value_dim].
  TensorView matrices(int round, size_t index, const parallel::HeadGroup& heads) const;

  RecurrentStates& states() const { return states_; }
  TensorView matrices() const { return states_.matrices(layer_); }
  TensorView tails() const { return states_.tails(layer_); }

 private:
  enum class What : uint8_t { tails, matrices };
  int place_of(int32_t instance, parallel::SequenceId sequence) const;
  void take_slots();
  void find_rows();
  /// A tail between segments.
  struct Tail {
    int round = 0;  ///< of the segment that needs it
    size_t sequence = 0;
    int peer = 0;
    int64_t end = 0;  ///< of those that are sent: the row after its last one
  };
  int64_t tail_rows() const { return states_.shape().tail_rows; }
  /// The sequence's step in the round before.
  const parallel::StateStep& step_before(int round, const parallel::StateStep& step) const;
  /// Whether the tail that a step needs is sent before convolutions.
  bool goes_ahead(int round, const parallel::StateStep& step) const;
  void find_tails();
  /// The messages of a round: tails that do not go ahead, or the matrices of some heads.
  comm::Exchange messages(What what, int round, const parallel::HeadGroup& heads) const;
  bool any_message(What what, int round) const;
  parallel::HeadGroup all_heads() const;
  parallel::HeadGroup heads_of(int group) const;
  TensorView heads_of(const TensorView& slot, const parallel::HeadGroup& heads) const;
  void keep_states();
  /// The slot with which a sequence of the pass begins, on the rank that has it.
  int64_t origin_slot(size_t index) const;
  TensorView in_slot(What what, int64_t slot) const;
  TensorView state(What what, parallel::SequenceId sequence) const {
    return in_slot(what, states_.slot(sequence));
  }

  attention::Compute compute_;
  parallel::WalkCosts costs_;
  RecurrentStates& states_;
  device::Buffer tails_sent_, tails_received_;

  // The pass.
  const attention::PassRows* pass_ = nullptr;
  comm::Communicator* ring_ = nullptr;
  std::vector<parallel::StateEnds> ends_;  ///< by sequence of the pass
  std::vector<bool> kept_;                 ///< likewise: this rank keeps the state before the pass
  parallel::StateRounds rounds_;
  std::vector<std::vector<kernels::StateRows>> own_;    ///< by round
  std::vector<std::vector<kernels::StateRows>> alone_;  ///< the same, with state 0
  std::vector<Tail> sent_, received_;
  bool any_ahead_ = false;  ///< some rank sends tails ahead
  int groups_ = 1;
  std::vector<std::vector<parallel::WalkStep>> order_;
  int64_t layer_ = 0;
};

}  // namespace pecia::recurrence
