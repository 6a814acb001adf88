// SPDX-License-Identifier: Apache-2.0
/// Writes keys and values that a plan keeps, and reads those that it restores.

#include <algorithm>
#include <chrono>

#include "lib/engine/execute/pass_runner.hpp"
#include "lib/ranks/comm/team.hpp"

namespace pecia::execute {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

/// Moves a sequence's keys out of the cache, once all have come that others send.
void PassRunner::park(int64_t sequence) {
  attention_.copies().wait_for(sequence);
  parking_.park(sequence);
}

/// Forgets or parks what this instance has no more. Returns the seconds in which keys left the cache.
double PassRunner::leave(const std::vector<schedule::LeftInstance>& left) {
  double park_s = 0;
  for (const schedule::LeftInstance& of : left) {
    if (of.instance != settings_.instance) continue;
    if (of.parks == 0) {
      forget(of.sequence);
      continue;
    }
    const auto begin = Clock::now();
    const report::ScopedSpan span(compute_.recorder, "move_parked_kv", report::Kind::idle);
    park(of.sequence);
    park_s += seconds_since(begin);
  }
  return park_s;
}

/// Moves keys out of the cache and back, and gives sequences more slots. Returns the seconds of that.
double PassRunner::resize(const schedule::Plan& plan) {
  const auto begin = Clock::now();
  const bool moves = !plan.parked.empty() || !plan.returned.empty();
  if (moves) {
    const report::ScopedSpan span(compute_.recorder, "move_parked_kv", report::Kind::idle);
    for (const int64_t sequence : plan.parked) park(sequence);
    const parallel::KvMap& map = attention_.ledger().map();
    for (const auto& [sequence, reserved] : plan.returned)
      if (map.contains(sequence) && map.is_parked(sequence))
        parking_.bring_back(sequence, reserved);
  }
  for (const auto& [sequence, reserved] : plan.grown)
    attention_.ledger().resize(sequence, reserved);
  return moves ? seconds_since(begin) : 0;
}

/// Brings parked keys back. What else is in the cache is saved already, or will not be, or this rank has
/// not heard yet that it was to be parked.
void PassRunner::make_room_for(const schedule::KvSaveOrder& order) {
  attention::KvLedger& ledger = attention_.ledger();
  ledger.settle();
  for (const int64_t sequence : ledger.map().sequences()) {
    const bool is_later = std::ranges::count(order.later, sequence) > 0;
    if (is_later && !ledger.map().is_parked(sequence)) park(sequence);
    if (!is_later && sequence != order.sequence) forget(sequence);
  }
  if (ledger.map().is_parked(order.sequence)) parking_.bring_back(order.sequence, order.reserved);
}

/// Each rank acts by itself. A rank that could not write says so, and the save is not made.
schedule::KvOutcome PassRunner::save(const schedule::KvSaveOrder& order) {
  const report::ScopedSpan span(compute_.recorder, "save_kv", report::Kind::idle);
  const auto begin = Clock::now();
  const auto go_on = [&] {
    if (const double seconds = seconds_since(begin); seconds > order.seconds)
      fail<SystemError>("not written within {:.1f} s", order.seconds);
  };
  schedule::KvOutcome outcome;
  try {
    attention_.copies().wait_for(order.sequence);
    if (!order.reserved.empty()) make_room_for(order);
    const attention::KvSaveTarget target{order.sequence, order.begin,      order.end,
                                         order.folder,   order.request_id, order.stamp};
    outcome.parts = kv_files_.save(target, go_on);
    for (const io::KvPart& part : outcome.parts)
      outcome.bytes += part.tokens() * kv_files_.bytes_per_token(part.layers);
    if (state_files_ != nullptr)
      for (io::KvPart& part : state_files_->save(target, go_on)) {
        outcome.bytes += state_files_->bytes(part);
        outcome.parts.push_back(std::move(part));
      }
    outcome.done = 1;
  } catch (const DeviceLost&) {
    throw;
  } catch (const SystemError& error) {
    outcome.error = error.what();
  }
  outcome.seconds = seconds_since(begin);
  return outcome;
}

/// Whether this is so on all ranks of the plan's team. Collective over them.
bool PassRunner::all_ranks_of(const schedule::Plan& plan, bool succeeded) {
  const std::vector<int32_t>& instances = plan.teams.front().instances;
  const int block = replica_.size() / settings_.instances;
  if (std::ssize(instances) == settings_.instances)
    return replica_.all_reduce_max(succeeded ? 0 : 1) == 0;
  std::vector<int> ranks;
  for (const int32_t instance : instances)
    for (int rank = instance * block; rank < (instance + 1) * block; ++rank) ranks.push_back(rank);
  const auto team = comm::make_team(replica_.on_host(), ranks, plan.number);
  return team->all_reduce_max(succeeded ? 0 : 1) == 0;
}

/// All ranks act together: if one cannot read its part, the pass is computed. Collective.
schedule::KvOutcome PassRunner::restore(const schedule::Plan& plan) {
  PECIA_CHECK(plan.items.size() == 1, "{} sequences to restore", plan.items.size());
  const report::ScopedSpan span(compute_.recorder, "restore_kv", report::Kind::idle);
  const auto begin = Clock::now();
  const parallel::PassSequence& rows = plan.items.front().rows;
  schedule::KvOutcome outcome;
  try {
    if (!restored_ || restored_->first != plan.restore) {
      auto found = io::read_kv_save(plan.restore);
      if (!found) fail<InputError>("{} is no save any more", plan.restore);
      restored_.emplace(plan.restore, std::move(*found));
    }
    const io::KvSave& save = restored_->second;
    restores_whole_ = save.recent_from > 0 || save.states.any();
    kv_files_.restore(plan.restore, save, rows.first, rows.count);
    if (state_files_ != nullptr) state_files_->restore(plan.restore, save, rows);
  } catch (const DeviceLost&) {
    throw;
  } catch (const InputError& error) {
    outcome.error = error.what();
  } catch (const SystemError& error) {
    outcome.error = error.what();
  }
  if (!outcome.error.empty()) restored_.reset();
  outcome.done = all_ranks_of(plan, outcome.error.empty()) ? 1 : 0;
  if (outcome.done == 0 && rows.first > 0 && restores_whole_)
    fail<SystemError>(
        "{} was whole when its first tokens were read, and it is no more{}{}. Layers with a "
        "window, or with states, have nothing to go on from: remove this folder and start again",
        plan.restore, outcome.error.empty() ? "" : ": ", outcome.error);
  outcome.bytes = static_cast<int64_t>(attention_.slots().size()) *
                  kv_files_.bytes_per_token(io::KvLayers::all);
  outcome.seconds = seconds_since(begin);
  return outcome;
}

}  // namespace pecia::execute
