// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recurrence/state_pass.hpp"

#include <algorithm>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/model/recurrence/state_snapshots.hpp"

namespace pecia::recurrence {

using parallel::SequenceId;
using parallel::StateStep;

namespace {

int64_t sent_bytes(const comm::Exchange& exchange) {
  int64_t bytes = 0;
  for (const auto& message : exchange.sends) bytes += std::ssize(message.bytes);
  return bytes;
}

}  // namespace

StatePass::StatePass(const attention::Compute& compute, const parallel::WalkCosts& costs,
                     RecurrentStates& states)
    : compute_(compute),
      costs_(costs),
      states_(states),
      tails_sent_(compute.buffer()),
      tails_received_(compute.buffer()) {}

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
  const parallel::HeadGroup all = all_heads();
  groups_ = parallel::head_groups(rounds_, all.heads, all.key_heads, costs_);
  order_ = parallel::walk_order(rounds_, groups_);
  take_slots();
  find_rows();
  find_tails();
}

parallel::HeadGroup StatePass::all_heads() const {
  const StateShape& shape = states_.shape();
  const int64_t keys = (shape.channels - shape.heads * shape.value_dim) / 2;
  return {0, shape.heads, 0, keys / shape.key_dim};
}

parallel::HeadGroup StatePass::heads_of(int group) const {
  const parallel::HeadGroup all = all_heads();
  return parallel::head_group(all.heads, all.key_heads, groups_, group);
}

TensorView StatePass::heads_of(const TensorView& slot, const parallel::HeadGroup& heads) const {
  const StateShape& shape = states_.shape();
  return slot.reshape({shape.heads, shape.key_dim, shape.value_dim})
      .slice_rows(heads.first_head, heads.heads);
}

TensorView StatePass::matrices(int round, size_t index, const parallel::HeadGroup& heads) const {
  const TensorView some = heads_of(states_.matrices(layer_, own_[round][index].state), heads);
  return some.reshape({1, some.size(0), some.size(1), some.size(2)});
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
  alone_ = own_;
  for (auto& round : alone_)
    for (kernels::StateRows& rows : round) rows.state = 0;
}

const StateStep& StatePass::step_before(int round, const StateStep& step) const {
  const auto found = std::ranges::find(rounds_[round - 1], step.sequence, &StateStep::sequence);
  PECIA_CHECK(found != rounds_[round - 1].end(), "no step before round {}", round);
  return *found;
}

bool StatePass::goes_ahead(int round, const StateStep& step) const {
  return round > 0 && step.travels() && step_before(round, step).segment.rows.size() >= tail_rows();
}

void StatePass::find_tails() {
  sent_.clear(), received_.clear();
  any_ahead_ = false;
  for (int round = 1; round < num_rounds(); ++round)
    for (const StateStep& step : rounds_[round]) {
      if (!goes_ahead(round, step)) continue;
      any_ahead_ = true;
      if (step.segment.rank == pass_->index())
        received_.push_back({round, step.sequence, step.from});
      if (step.from != pass_->index()) continue;
      const int64_t slot = states_.slot(pass_->sequences()[step.sequence].sequence);
      const auto rows = std::ranges::find(own_[round - 1], slot, &kernels::StateRows::state);
      PECIA_CHECK(rows != own_[round - 1].end(), "no rows of a tail that is sent");
      sent_.push_back({round, step.sequence, step.segment.rank, rows->first_row + rows->num_rows});
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

void StatePass::exchange_tails(std::span<const TensorView> rows) {
  if (!any_ahead_) return;
  const int64_t channels = states_.shape().channels, count = tail_rows();
  const auto room = [&](device::Buffer& buffer, const std::vector<Tail>& tails) {
    return buffer.tensor(DType::fp32, {std::ssize(tails) * count, channels});
  };
  const TensorView out = room(tails_sent_, sent_), in = room(tails_received_, received_);
  comm::Exchange exchange;
  for (size_t i = 0; i < sent_.size(); ++i) {
    const TensorView tail = out.slice_rows(static_cast<int64_t>(i) * count, count);
    int64_t first = 0;
    for (const TensorView& columns : rows) {
      compute_.copy(columns.slice_rows(sent_[i].end - count, count),
                    tail.slice_columns(first, columns.size(1)));
      first += columns.size(1);
    }
    exchange.sends.push_back({attention::bytes_of(tail), sent_[i].peer});
  }
  for (size_t i = 0; i < received_.size(); ++i)
    exchange.receives.push_back(
        {attention::bytes_of(in.slice_rows(static_cast<int64_t>(i) * count, count)),
         received_[i].peer});
  const comm::Operation operation{"conv_tails", ring_->next_operation()};
  compute_.wait(*ring_->start_exchange(exchange, operation), operation.name,
                out.elements() * size_of(DType::fp32));
}

void StatePass::bring_tails(int round) {
  for (size_t i = 0; i < received_.size(); ++i) {
    if (received_[i].round != round) continue;
    const TensorView own = state(What::tails, pass_->sequences()[received_[i].sequence].sequence);
    const int64_t bytes = own.elements() * size_of(DType::fp32);
    compute_.device.copy(own.data(),
                         tails_received_.as<std::byte>() + static_cast<int64_t>(i) * bytes, bytes,
                         compute_.stream);
  }
  if (!any_message(What::tails, round)) return;
  const comm::Exchange exchange = messages(What::tails, round, all_heads());
  const comm::Operation operation{"conv_tails", ring_->next_operation()};
  compute_.wait(*ring_->start_exchange(exchange, operation), operation.name, sent_bytes(exchange));
}

/// The same on all ranks.
bool StatePass::any_message(What what, int round) const {
  return std::ranges::any_of(rounds_[round], [&](const StateStep& step) {
    return step.travels() && !(what == What::tails && goes_ahead(round, step));
  });
}

comm::Exchange StatePass::messages(What what, int round, const parallel::HeadGroup& heads) const {
  const auto bytes = [&](int64_t slot) {
    const TensorView whole = in_slot(what, slot);
    return attention::bytes_of(what == What::tails ? whole : heads_of(whole, heads));
  };
  comm::Exchange exchange;
  for (const StateStep& step : rounds_[round]) {
    if (!step.travels() || (what == What::tails && goes_ahead(round, step))) continue;
    const SequenceId sequence = pass_->sequences()[step.sequence].sequence;
    if (step.from == pass_->index())
      exchange.sends.push_back(
          {bytes(round == 0 ? origin_slot(step.sequence) : states_.slot(sequence)),
           step.segment.rank});
    if (step.segment.rank == pass_->index())
      exchange.receives.push_back({bytes(states_.slot(sequence)), step.from});
  }
  return exchange;
}

/// Ranks without a message take part, since all count the same operations of the ring. What is only
/// sent is waited for when its memory is received into, or at the end.
void StatePass::walk(const std::function<void(int, const parallel::HeadGroup&)>& take_in) {
  constexpr const char* name = "recurrent_states";
  struct Sent {
    std::unique_ptr<comm::Transfer> transfer;
    int64_t bytes;
  };
  std::vector<std::vector<Sent>> sent(groups_);
  const auto finish = [&](std::vector<Sent>& transfers) {
    for (const Sent& each : transfers) compute_.wait(*each.transfer, name, each.bytes);
    transfers.clear();
  };
  for (const auto& steps : order_) {
    std::vector<Sent> coming(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto [round, group] = steps[i];
      if (!any_message(What::matrices, round)) continue;
      const comm::Exchange exchange = messages(What::matrices, round, heads_of(group));
      const comm::Operation operation{name, ring_->next_operation()};
      if (!exchange.receives.empty()) finish(sent[group]);
      Sent started{ring_->start_exchange(exchange, operation), sent_bytes(exchange)};
      // In the first round a parent's state may be sent, whose rows may go on.
      if (round > 0 && exchange.receives.empty() && !ring_->on_stream())
        sent[group].push_back(std::move(started));
      else
        coming[i] = std::move(started);
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      if (coming[i].transfer) compute_.wait(*coming[i].transfer, name, coming[i].bytes);
      take_in(steps[i].round, heads_of(steps[i].group));
    }
  }
  for (auto& transfers : sent) finish(transfers);
}

}  // namespace pecia::recurrence
