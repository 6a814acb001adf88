// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The states of recurrent layers in a pass, as one rank sees them (ranks/parallel/state_route.hpp):
/// which of its rows go through which state in which round, and what comes from other ranks before.
///
/// Rows of an answer after its next token were drafted, and may be taken back. The rank that has the
/// sequence's state before such a pass keeps it until the sequence's next pass.

#include "kernels/api/state_rows.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/pass_rows.hpp"
#include "lib/model/recurrence/recurrent_states.hpp"
#include "lib/ranks/parallel/state_route.hpp"

namespace pecia::recurrence {

class StatePass {
 public:
  /// All references outlive this object.
  StatePass(const attention::Compute& compute, RecurrentStates& states)
      : compute_(compute), states_(states) {}

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
  /// Collective over the ring: the tails, or the matrices, that this rank's rows of the round need
  /// come from the ranks that have them. Call it for the rounds in their order, when the rows of the
  /// rounds before have gone through.
  void bring_tails(int round);
  void bring_matrices(int round);

  RecurrentStates& states() const { return states_; }
  TensorView matrices() const { return states_.matrices(layer_); }
  TensorView tails() const { return states_.tails(layer_); }

 private:
  enum class What : uint8_t { tails, matrices };
  int place_of(int32_t instance, parallel::SequenceId sequence) const;
  void take_slots();
  void find_rows();
  void bring(What what, int round);
  void keep_states();
  /// The slot with which a sequence of the pass begins, on the rank that has it.
  int64_t origin_slot(size_t index) const;
  TensorView in_slot(What what, int64_t slot) const;
  TensorView state(What what, parallel::SequenceId sequence) const {
    return in_slot(what, states_.slot(sequence));
  }

  attention::Compute compute_;
  RecurrentStates& states_;

  // The pass.
  const attention::PassRows* pass_ = nullptr;
  comm::Communicator* ring_ = nullptr;
  std::vector<parallel::StateEnds> ends_;  ///< by sequence of the pass
  std::vector<bool> kept_;                 ///< likewise: this rank keeps the state before the pass
  parallel::StateRounds rounds_;
  std::vector<std::vector<kernels::StateRows>> own_;  ///< by round
  int64_t layer_ = 0;
};

}  // namespace pecia::recurrence
