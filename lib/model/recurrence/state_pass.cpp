// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recurrence/state_pass.hpp"

#include <algorithm>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/model/recurrence/state_snapshots.hpp"

namespace pecia::recurrence {

using parallel::SequenceId;
using parallel::StateStep;

void StatePass::begin(const attention::PassRows& rows, comm::Communicator& ring) {
  pass_ = &rows;
  ring_ = &ring;
  ends_.clear();
  const parallel::KvMap& map = rows.ledger().map();
  for (size_t i = 0; i < rows.sequences().size(); ++i) {
    const SequenceId sequence = rows.sequences()[i].sequence;
    const int32_t before = rows.state_origins()[i].instance;
    ends_.push_back({before == StateStep::nowhere ? before : place_of(before, sequence),
                     place_of(map.state_holder(sequence), sequence)});
  }
  rounds_ = state_rounds(rows.sequences(), rows.team(), ends_);
  take_slots();
  find_rows();
}

/// The place in the ring of an instance that has the sequence's state.
int StatePass::place_of(int32_t instance, SequenceId sequence) const {
  const auto place = pass_->team().index_of(instance);
  PECIA_CHECK(place, "instance {} has the state of sequence {}, whose team is {}", instance,
              sequence, pass_->team().text());
  return *place;
}

/// Parents' states stay, too.
void StatePass::take_slots() {
  drop_kept(states_, pass_->ledger(), [&](SequenceId sequence) {
    return std::ranges::count(pass_->sequences(), sequence, &parallel::PassSequence::sequence) > 0;
  });
  std::set<SequenceId> here, leaving;
  for (const auto& round : rounds_)
    for (const StateStep& step : round)
      if (step.segment.rank == pass_->index())
        here.insert(pass_->sequences()[step.sequence].sequence);
  for (size_t i = 0; i < ends_.size(); ++i)
    if (ends_[i].from == pass_->index()) leaving.insert(pass_->state_origins()[i].sequence);
  states_.release_unless([&](SequenceId sequence) {
    return here.contains(sequence) || leaving.contains(sequence) ||
           goes_on_here(pass_->ledger(), sequence);
  });
  if (states_.may_be_any())
    for (const SequenceId sequence : leaving) states_.take(sequence);
  keep_states();
  for (const SequenceId sequence : here) states_.take(sequence);
}

/// A branch's first rows need nothing kept: its parent's state stays.
void StatePass::keep_states() {
  kept_.assign(ends_.size(), false);
  for (size_t i = 0; i < ends_.size(); ++i) {
    const parallel::PassSequence& rows = pass_->sequences()[i];
    if (!parallel::may_be_shortened(rows) || ends_[i].from != pass_->index()) continue;
    if (pass_->state_origins()[i].sequence != rows.sequence) continue;
    states_.keep(rows.sequence, rows.first);
    kept_[i] = true;
  }
}

int64_t StatePass::origin_slot(size_t index) const {
  const SequenceId sequence = pass_->state_origins()[index].sequence;
  return kept_[index] ? states_.kept_slot(sequence) : states_.slot(sequence);
}

void StatePass::find_rows() {
  own_.assign(rounds_.size(), {});
  std::vector<int64_t> next_row;  // by sequence
  int64_t row = 0;
  for (const attention::SequenceRows& rows : pass_->rows_at(pass_->index())) {
    next_row.push_back(row);
    row += rows.count();
  }
  for (size_t round = 0; round < rounds_.size(); ++round)
    for (const StateStep& step : rounds_[round]) {
      const int64_t count = step.segment.rows.size();
      if (step.segment.rank != pass_->index() || count == 0) continue;
      own_[round].push_back({next_row[step.sequence], count,
                             states_.slot(pass_->sequences()[step.sequence].sequence)});
      next_row[step.sequence] += count;
    }
}

TensorView StatePass::in_slot(What what, int64_t slot) const {
  return what == What::tails ? states_.tail(layer_, slot) : states_.matrices(layer_, slot);
}

void StatePass::begin_layer(int64_t layer) {
  layer_ = layer;
  if (rounds_.empty()) return;
  for (const StateStep& step : rounds_.front()) {
    if (step.segment.rank != pass_->index() || step.travels()) continue;
    const SequenceId sequence = pass_->sequences()[step.sequence].sequence;
    const bool begins = step.from == StateStep::nowhere;
    if (!begins && origin_slot(step.sequence) == states_.slot(sequence)) continue;
    for (const What what : {What::tails, What::matrices}) {
      const TensorView own = state(what, sequence);
      const int64_t bytes = own.elements() * size_of(DType::fp32);
      if (begins)
        compute_.device.zero(own.data(), bytes, compute_.stream);
      else
        compute_.device.copy(own.data(), in_slot(what, origin_slot(step.sequence)).data(), bytes,
                             compute_.stream);
    }
  }
}

void StatePass::bring_tails(int round) {
  bring(What::tails, round);
}

void StatePass::bring_matrices(int round) {
  bring(What::matrices, round);
}

void StatePass::bring(What what, int round) {
  if (std::ranges::none_of(rounds_[round], &StateStep::travels)) return;
  const char* const name = what == What::tails ? "conv_tails" : "recurrent_states";
  comm::Exchange exchange;
  int64_t bytes = 0;
  for (const StateStep& step : rounds_[round]) {
    if (!step.travels()) continue;
    const SequenceId sequence = pass_->sequences()[step.sequence].sequence;
    if (step.from == pass_->index()) {
      const int64_t slot = round == 0 ? origin_slot(step.sequence) : states_.slot(sequence);
      exchange.sends.push_back({attention::bytes_of(in_slot(what, slot)), step.segment.rank});
      bytes += static_cast<int64_t>(exchange.sends.back().bytes.size());
    }
    if (step.segment.rank == pass_->index())
      exchange.receives.push_back({attention::bytes_of(state(what, sequence)), step.from});
  }
  // Ranks without a message take part, since all count the same operations of the ring.
  const comm::Operation operation{name, ring_->next_operation()};
  compute_.wait(*ring_->start_exchange(exchange, operation), name, bytes);
}

}  // namespace pecia::recurrence
