// SPDX-License-Identifier: Apache-2.0
#pragma once
/// States of recurrent layers as bytes in the host's memory. A snapshot has what a rank has of a
/// sequence's state: of each layer in turn its matrices and its tail, in the shapes of StateShape.

#include "lib/model/attention/beside_keys.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/kv_ledger.hpp"
#include "lib/model/recurrence/recurrent_states.hpp"

namespace pecia::recurrence {

/// Whether the ledger's rank is where the sequence goes on from its own state: where its last token
/// was computed. Not while the sequence is parked, nor before a branch has tokens of its own.
bool goes_on_here(const attention::KvLedger& ledger, parallel::SequenceId sequence);

/// Frees states that are kept of sequences which have ended or are parked, and of those that `ends`
/// tells.
void drop_kept(RecurrentStates& states, const attention::KvLedger& ledger,
               const std::function<bool(parallel::SequenceId)>& ends = {});

class StateSnapshots : public attention::BesideKeys {
 public:
  /// All references outlive this object.
  StateSnapshots(RecurrentStates& states, const attention::KvLedger& ledger,
                 const attention::Compute& compute)
      : states_(states), ledger_(ledger), compute_(compute) {}

  const StateShape& shape() const { return states_.shape(); }
  const attention::KvLedger& ledger() const { return ledger_; }

  int64_t bytes(parallel::SequenceId sequence) const override;
  void copy_out(parallel::SequenceId sequence, std::span<std::byte> to) const override;
  int64_t expect(parallel::SequenceId sequence) override;
  /// Gives the sequence a slot if it has none: then no pass is under way.
  void copy_in(parallel::SequenceId sequence, std::span<const std::byte> from) override;

  /// To be called when the ledger has shortened the sequence: its state is that after `length` tokens.
  void go_back(parallel::SequenceId sequence, int64_t length) { states_.go_back(sequence, length); }

 private:
  RecurrentStates& states_;
  const attention::KvLedger& ledger_;
  const attention::Compute& compute_;
};

}  // namespace pecia::recurrence
