// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/pass_runner.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "lib/engine/execute/awaited_copies.hpp"

namespace pecia::execute {

PassRunner::PassRunner(const Settings& settings, comm::Communicator& replica, model::Model& model,
                       attention::Attention& attention, const attention::KvFiles& kv_files,
                       recurrence::StateSnapshots* snapshots,
                       const recurrence::StateFiles* state_files, attention::KvParking& parking,
                       const attention::Compute& compute)
    : settings_(settings),
      replica_(replica),
      model_(model),
      attention_(attention),
      kv_files_(kv_files),
      snapshots_(snapshots),
      state_files_(state_files),
      parking_(parking),
      compute_(compute),
      logits_(compute.buffer()),
      candidates_(compute.buffer()),
      allowed_(settings.vocab) {}

/// Returns the seconds in which keys left the cache or came back.
double PassRunner::begin(const schedule::Plan& plan) {
  attention_.ledger().settle();
  for (const int64_t sequence : plan.removed) forget(sequence);
  const double park_s = leave(plan.left) + resize(plan) + std::exchange(unreported_park_s_, 0);
  for (const schedule::NewSequence& added : plan.added) {
    attention_.ledger().set_state(added.sequence, added.state);
    if (added.keeps_tokens == 0) continue;
    History& history = histories_[added.sequence];
    const bool begins_as_parent =
        added.state.length == 0 && added.state.parent != schedule::NewSequence::no_parent;
    history.tokens = begins_as_parent ? histories_.at(added.state.parent).tokens : added.tokens;
  }
  for (const schedule::TurnStart& turn : plan.turns) {
    turns_[turn.sequence] = turn;
    allowed_.forget(turn.sequence);
    if (turn.shape.empty()) continue;
    PECIA_CHECK(settings_.grammars, "an answer with a shape, without grammars");
    allowed_.begin(turn.sequence, settings_.grammars->matcher(turn.shape));
  }
  for (const schedule::PlanItem& item : plan.items)
    if (const auto history = histories_.find(item.rows.sequence); history != histories_.end())
      history->second.tokens.insert(history->second.tokens.end(), item.tokens.begin(),
                                    item.tokens.end());
  return park_s;
}

/// Drops what this rank knows of a sequence, if it does: perhaps another instance of its team alone
/// was told of it.
void PassRunner::forget(int64_t sequence) {
  if (!attention_.ledger().map().contains(sequence)) return;
  attention_.copies().wait_for(sequence);
  attention_.ledger().remove(sequence);
  parking_.forget(sequence);
  turns_.erase(sequence);
  histories_.erase(sequence);
  allowed_.forget(sequence);
}

/// Drops drafted tokens that are no part of the answer, unless a plan that saves has said so before.
void PassRunner::shorten(int64_t sequence, int64_t length) {
  const parallel::KvMap& map = attention_.ledger().map();
  if (!map.contains(sequence) || map.length(sequence) <= length) return;
  attention_.ledger().shorten(sequence, length);
  if (snapshots_ != nullptr) snapshots_->go_back(sequence, length);
  if (const auto history = histories_.find(sequence); history != histories_.end())
    history->second.tokens.resize(length);
}

/// Makes room for keys that others compute, and lets them come.
void PassRunner::receive(const schedule::Receiving& receiving) {
  attention_.ledger().settle();
  unreported_park_s_ += leave(receiving.left);
  for (const schedule::NewSequence& added : receiving.added_at(settings_.instance))
    attention_.ledger().set_state(added.sequence, added.state);
  attention_.copies().receive(receiving.copies_to(settings_.instance));
}

schedule::Outcome PassRunner::execute(const schedule::Plan& plan,
                                      const std::function<void()>& meanwhile) {
  schedule::Outcome outcome;
  for (const auto& [sequence, length] : plan.shortened_at(settings_.instance))
    shorten(sequence, length);
  if (plan.saves()) {
    outcome.kv = save(plan.save);
    return outcome;
  }
  if (plan.receiving.has(settings_.instance)) {
    receive(plan.receiving);
    return outcome;
  }
  const report::Totals before = compute_.recorder.totals();
  for (const int64_t sequence : awaited_copies(plan, attention_.ledger().map()))
    attention_.copies().wait_for(sequence);
  compute_.recorder.set_pass(plan.number);
  outcome.park_s = begin(plan);
  const std::vector<parallel::TeamPass> passes = plan.passes();
  const std::optional<size_t> own = team_of(passes, settings_.instance);
  const bool of_some = own && (passes.size() > 1 || passes[*own].team.size() < settings_.instances);
  compute_.recorder.set_team(of_some ? static_cast<int32_t>(*own) : -1, settings_.instance);
  team_ = of_some ? fmt::format("instance {} in team {} of {}", settings_.instance, *own,
                                passes[*own].team.text())
                  : "";
  attention_.begin_pass(passes, plan.number);
  attention_.copies().begin_pass(plan.receiving.copies);
  if (!plan.restore.empty()) {
    outcome.kv = restore(plan);
    if (outcome.kv.done != 0) return outcome;
  }
  if (!own) return outcome;
  try {
    compute(plan, static_cast<int32_t>(*own), outcome, meanwhile);
  } catch (const DeviceLost&) {
    throw;
  } catch (const SystemError& error) {
    if (team_.empty()) throw;
    fail<SystemError>("{}: {}", team_, error.what());
  }
  const report::Totals& after = compute_.recorder.totals();
  outcome.compute_s = after.compute_s - before.compute_s;
  outcome.comm_s = after.comm_s - before.comm_s;
  return outcome;
}

void PassRunner::compute(const schedule::Plan& plan, int32_t own, schedule::Outcome& outcome,
                         const std::function<void()>& meanwhile) {
  const parallel::Team& team = plan.teams[own];
  const int index = team.index_of(settings_.instance).value();
  // The rows of this rank's block, and those among them that are sampled or have targets.
  model::Rows rows;
  Asked sampled, targets, pooled;
  samples_ = plan.samples();
  int32_t next_sample = 0;                                // of the item
  std::map<std::pair<int32_t, int64_t>, int64_t> row_at;  // (item, position) → row
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const schedule::PlanItem& item = plan.items[i];
    const int32_t first_sample =
        std::exchange(next_sample, next_sample + static_cast<int32_t>(item.samples()));
    if (item.team != own) continue;
    for (const auto& range : rows_of(item.rows, team, index))
      for (int64_t position = range.begin; position < range.end; ++position) {
        const auto row = static_cast<int64_t>(rows.tokens.size());
        if (item.samples() > 0 && position >= item.first_sampled())
          sampled.add(first_sample + static_cast<int32_t>(position - item.first_sampled()), row);
        if (!plan.targets.empty() || !plan.pools.empty())
          row_at[{static_cast<int32_t>(i), position}] = row;
        rows.tokens.push_back(item.tokens[position - item.rows.first]);
        rows.rope_lengths.push_back(model_.rope_length(position, item.prompt_end, item.longest));
      }
  }
  for (size_t i = 0; i < plan.targets.size(); ++i)
    if (const auto row = row_at.find({plan.targets[i].item, plan.targets[i].position});
        row != row_at.end())
      targets.add(static_cast<int32_t>(i), row->second);
  for (size_t i = 0; i < plan.pools.size(); ++i) {
    const auto& [item, vector, begin, end] = plan.pools[i];
    for (auto row = row_at.lower_bound({item, begin});
         row != row_at.end() && row->first < std::pair(item, end); ++row)
      pooled.add(static_cast<int32_t>(i), row->second);
  }

  const AllAsked asked{sampled, targets, pooled};
  rows.wanted = asked.rows();
  if (model_.ends()) start_finding_tokens(plan, sampled);
  model_.forward(rows, attention_);
  attention_.copies().send_beside();
  if (meanwhile && compute_.device.info().is_gpu()) meanwhile();
  compute_.recorder.take_times();  // meanwhile a GPU still computes
  if (model_.ends()) {
    {
      const report::ScopedSpan span(compute_.recorder, "allowed_tokens", report::Kind::compute);
      allowed_.wait(compute_);
    }
    outcome.sampled = sample(plan, sampled);
    outcome.targets = score(plan, targets);
    outcome.pooled = pool(pooled);
  }
  find_broken(plan, asked, outcome);
  compute_.recorder.take_times();
}

std::vector<int64_t> PassRunner::AllAsked::rows() const {
  std::vector<int64_t> rows;
  for (const Asked* const of : {&sampled, &targets, &pooled})
    rows.insert(rows.end(), of->rows.begin(), of->rows.end());
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

/// Finds the part of the model to blame for items without a next token, and for those whose vectors or
/// log-probabilities are no numbers. A rank that does not know yet which items these are, because others
/// sample, reports on all its rows.
void PassRunner::find_broken(const schedule::Plan& plan, const AllAsked& all,
                             schedule::Outcome& outcome) {
  std::set<int32_t> failed;  // items
  for (size_t i = 0; i < outcome.sampled.which.size(); ++i)
    if (outcome.sampled.tokens[i] == kernels::no_token)
      failed.insert(samples_[outcome.sampled.which[i]].item);
  for (size_t i = 0; i < outcome.targets.which.size(); ++i)
    if (std::isnan(outcome.targets.logprobs[i]))
      failed.insert(plan.targets[outcome.targets.which[i]].item);
  for (const schedule::PooledSum& of : outcome.pooled)
    if (of.sum.broken()) failed.insert(plan.pools[of.pool].item);
  Asked asked;
  const auto add = [&](int32_t item, int64_t row, bool may_be_elsewhere) {
    const bool is_elsewhere = !model_.ends() || (may_be_elsewhere && model_.rows_are_cut());
    if (is_elsewhere || failed.contains(item)) asked.add(item, row);
  };
  for (size_t i = 0; i < all.sampled.which.size(); ++i)
    add(samples_[all.sampled.which[i]].item, all.sampled.rows[i], true);
  for (size_t i = 0; i < all.targets.which.size(); ++i)
    add(plan.targets[all.targets.which[i]].item, all.targets.rows[i], true);
  for (size_t i = 0; i < all.pooled.which.size(); ++i)  // summed where they are
    add(plan.pools[all.pooled.which[i]].item, all.pooled.rows[i], false);
  if (asked.rows.empty()) return;
  const std::vector<model::Model::BrokenPlace> places = model_.broken_at(asked.rows);
  std::map<int32_t, model::Model::BrokenPlace> first;  // by item: other rows take it on
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].order == 0) continue;
    const auto [known, is_new] = first.try_emplace(asked.which[i], places[i]);
    if (!is_new && places[i].order < known->second.order) known->second = places[i];
  }
  for (const auto& [item, place] : first)
    outcome.broken.push_back(
        {item, place.order, team_.empty() ? place.name : fmt::format("{}, {}", place.name, team_)});
}

}  // namespace pecia::execute
