// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recurrence/state_pass.hpp"

#include <algorithm>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/model/recurrence/state_snapshots.hpp"

namespace pecia::recurrence {

using parallel::PassSequence;
using parallel::SequenceId;
using parallel::StateStep;

void StatePass::begin(const attention::PassRows& rows, comm::Communicator& ring) {
  pass_ = &rows;
  ring_ = &ring;
  origins_.clear();
  for (const PassSequence& sequence : rows.sequences()) origins_.push_back(origin_of(sequence));
  rounds_ = state_rounds(rows.sequences(), rows.team(), [&](const PassSequence& sequence) {
    return origins_[&sequence - rows.sequences().data()].rank;
  });
  take_slots();
  find_rows();
}

StatePass::Origin StatePass::origin_of(const PassSequence& rows) const {
  if (rows.first == 0) return {};
  const parallel::KvMap& map = pass_->ledger().map();
  const int instance = computed_at(map, rows.sequence, rows.first - 1);
  const auto rank = pass_->team().index_of(instance);
  PECIA_CHECK(rank, "the state of sequence {} is on instance {}, which is not in the team",
              rows.sequence, instance);
  const auto parent = map.parent(rows.sequence);
  const bool begins = parent && map.length(*parent) == rows.first;
  return {*rank, begins ? *parent : rows.sequence};
}

/// States stay on the rank that has computed the last row, parents' states, too.
void StatePass::take_slots() {
  std::set<SequenceId> here, leaving;
  for (const auto& round : rounds_)
    for (const StateStep& step : round)
      if (step.segment.rank == pass_->index())
        here.insert(pass_->sequences()[step.sequence].sequence);
  for (const Origin& origin : origins_)
    if (origin.rank == pass_->index()) leaving.insert(origin.sequence);
  states_.release_unless([&](SequenceId sequence) {
    return here.contains(sequence) || leaving.contains(sequence) ||
           goes_on_here(pass_->ledger(), sequence);
  });
  for (const SequenceId sequence : here) states_.take(sequence);
  if (!states_.may_be_any()) return;
  for (const SequenceId sequence : leaving) states_.take(sequence);
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
      if (step.segment.rank != pass_->index()) continue;
      const int64_t count = step.segment.rows.size();
      own_[round].push_back({next_row[step.sequence], count,
                             states_.slot(pass_->sequences()[step.sequence].sequence)});
      next_row[step.sequence] += count;
    }
}

TensorView StatePass::state(What what, SequenceId sequence) const {
  const int64_t slot = states_.slot(sequence);
  return what == What::tails ? states_.tail(layer_, slot) : states_.matrices(layer_, slot);
}

void StatePass::begin_layer(int64_t layer) {
  layer_ = layer;
  if (rounds_.empty()) return;
  for (const StateStep& step : rounds_.front()) {
    if (step.segment.rank != pass_->index() || step.travels()) continue;
    const SequenceId sequence = pass_->sequences()[step.sequence].sequence;
    const Origin& origin = origins_[step.sequence];
    if (origin.sequence == sequence && origin.rank != StateStep::nowhere) continue;
    for (const What what : {What::tails, What::matrices}) {
      const TensorView own = state(what, sequence);
      const int64_t bytes = own.elements() * size_of(DType::fp32);
      if (origin.rank == StateStep::nowhere)
        compute_.device.zero(own.data(), bytes, compute_.stream);
      else
        compute_.device.copy(own.data(), state(what, origin.sequence).data(), bytes,
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
      const SequenceId of = round == 0 ? origins_[step.sequence].sequence : sequence;
      exchange.sends.push_back({attention::bytes_of(state(what, of)), step.segment.rank});
      bytes += static_cast<int64_t>(exchange.sends.back().bytes.size());
    }
    if (step.segment.rank == pass_->index())
      exchange.receives.push_back({attention::bytes_of(state(what, sequence)), step.from});
  }
  const comm::Operation operation{name, ring_->next_operation()};
  if (exchange.sends.empty() && exchange.receives.empty()) return;
  compute_.wait(*ring_->start_exchange(exchange, operation), name, bytes);
}

}  // namespace pecia::recurrence
