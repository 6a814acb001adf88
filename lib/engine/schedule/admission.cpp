// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/admission.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

Slots free_in(const Room& room) {
  Slots free;
  for (const InstanceRoom& instance : room) free.push_back(instance.free_slots);
  return free;
}

}  // namespace

Admission::Admission(const SchedulerLimits& limits)
    : places_(make_slot_places(limits)),
      demand_(limits),
      all_wait_least_(limits.waits_least()),
      elastic_(limits.elastic),
      first_answering_(limits.apart() ? limits.ring_size - limits.answering : 0),
      most_ahead_(limits.elastic ? std::numeric_limits<int64_t>::max() : limits.max_batch_tokens),
      where_(limits.elastic ? "on all ranks together" : "on each rank") {}

/// How much of these slots one request could have: of all that answer, or of each as much.
int64_t Admission::free_for_one(const Slots& free) const {
  return elastic_ ? std::accumulate(free.begin() + first_answering_, free.end(), int64_t{0})
                  : std::ranges::min(free);
}

/// Whether others read the request's first prompt than those that answer it. What has keys already, or
/// gets them from a save, is read where they are.
bool Admission::reads_apart(const SchedulerState& state, const batch::Request& request) const {
  return state.limits.apart() && request.saved.tokens == 0 &&
         state.needs.of_beginning(request) <=
             state.limits.kv_tokens * state.limits.reading_instances().most;
}

/// Takes slots of what is left. `reading`: for the prompt, where others read it.
std::optional<Grant> Admission::take(Room& left, int64_t slots, std::optional<int64_t> reading,
                                     int64_t tokens, double due_s) const {
  const auto taken = places_->of_request(left, slots, due_s);
  if (!taken) return {};
  Grant grant{*taken};
  if (reading) {
    const auto of_prompt = places_->of_reading(left, *reading, due_s);
    if (!of_prompt) return {};
    grant.reading = *of_prompt;
  }
  const Slots& reads = reading ? grant.reading : grant.reserved;
  for (size_t instance = 0; instance < left.size(); ++instance) {
    left[instance].free_slots -= grant.reserved[instance] + (reading ? reads[instance] : 0);
    if (reads[instance] == 0) continue;
    left[instance].unread.push_back({due_s, tokens});
    ++left[instance].sequences;
  }
  return grant;
}

/// The room with which the first open one of these turns of the request begins.
int64_t Admission::room_of(const SchedulerState& state, const batch::Request& request,
                           std::span<const batch::Turn> turns) const {
  const auto open = std::ranges::find_if(turns, [](const auto& turn) { return !turn.finished; });
  return open == turns.end() ? 0 : demand_.first_room(state, request, *open);
}

/// The slots with which a branch begins, where on demand.
int64_t Admission::of_branch(const SchedulerState& state, const batch::Request& request,
                             size_t turn) const {
  const int64_t beginning = state.needs.of_branch_beginning(request, turn);
  if (beginning == 0) return 0;  // the only token of its answer comes from the prefix
  const std::span turns(request.turns);
  const auto own = turns.subspan(turn, end_of_branch(request, turn) - turn);
  return beginning + state.needs.of_generated(room_of(state, request, own));
}

int64_t Admission::to_begin(const SchedulerState& state, const batch::Request& request) const {
  if (!demand_.on()) return state.needs.of_request(request);
  const int64_t first = state.needs.of_beginning(request);
  if (!is_fork(request))
    return first + state.needs.of_generated(room_of(state, request, request.turns));
  int64_t most = 0;
  for (size_t turn = 0; turn < request.turns.size(); turn = end_of_branch(request, turn))
    if (!branch_settled(request, turn)) most = std::max(most, of_branch(state, request, turn));
  return first + most;
}

std::optional<Grant> Admission::request(const SchedulerState& state, const RequestState& request,
                                        Room& left) const {
  // There is room for the states of max_sequences beginnings beside those that run.
  if (state.limits.has_states && request.is_fork() &&
      state.forks_under_way() >= state.limits.max_sequences)
    return {};
  const auto reading = reads_apart(state, request.request)
                           ? std::optional(state.needs.of_beginning(request.request))
                           : std::nullopt;
  const auto taken = take(left, to_begin(state, request.request), reading,
                          first_tokens(request.request), request.due_s());
  if (!taken) return {};
  Grant grant = grant_of(state, request, taken->reserved);
  grant.reading = taken->reading;
  return grant;
}

Grant Admission::grant_of(const SchedulerState& state, const RequestState& request,
                          const Slots& slots) const {
  if (!request.is_fork())
    return {.reserved = slots,
            .room = demand_.on() ? room_of(state, request.request, request.request.turns) : 0};
  const Slots prefix = places_->first_of(state.needs.of_prefix(request.request), slots);
  return {.reserved = prefix,
          .credit = demand_.on() ? Slots(slots.size()) : without(slots, prefix)};
}

std::optional<Grant> Admission::branch(const SchedulerState& state,
                                       const RequestState& fork) const {
  if (demand_.on()) {
    if (fork.prefix_again) return {};
    const auto places =
        demand_.of_branch(state, fork, of_branch(state, fork.request, fork.next_branch));
    if (!places) return {};
    const std::span turns(fork.request.turns);
    return Grant{.reserved = places->own,
                 .room = room_of(state, fork.request, turns.subspan(fork.next_branch)),
                 .prefix = places->prefix};
  }
  const int64_t needed = state.needs.of_branch(fork.request, fork.next_branch);
  if (!fork.credit_used) return Grant{places_->first_of(needed, fork.kept_back), {}, true};
  const auto slots = places_->of_branch(state, fork, needed, state.free_slots());
  return slots ? std::optional(Grant{*slots}) : std::nullopt;
}

bool Admission::may_be_overtaken(const SchedulerState& state, const RequestState& request,
                                 const Room& left) const {
  return all_wait_least_ && to_begin(state, request.request) <= free_for_one(free_in(left));
}

bool Admission::has_room(const SchedulerState& state, int64_t slots, int64_t tokens) const {
  if (std::ssize(state.active) + std::ssize(state.waiting) >= state.limits.max_sequences)
    return false;
  if (state.all_await_return()) return false;
  if (all_wait_least_) {
    int64_t free = free_for_one(free_in(state.room()));
    for (const auto& waiting : state.waiting) free -= to_begin(state, waiting->request);
    return slots <= free;
  }
  Room left = state.room();
  int64_t ahead = 0;
  for (const auto& waiting : state.waiting) {
    ahead += first_tokens(waiting->request);
    if (!request(state, *waiting, left)) return false;
  }
  const auto reading = state.limits.apart() ? std::optional(tokens) : std::nullopt;
  return ahead < most_ahead_ && take(left, slots, reading, tokens, 0);
}

bool Admission::fits(const SchedulerState& state, const batch::Request& request) const {
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (state.needs.alone(request, turn) > state.limits.most_slots()) return false;
  return true;
}

std::vector<std::pair<size_t, std::string>> Admission::too_large(
    const SchedulerState& state, const batch::Request& request) const {
  std::vector<std::pair<size_t, std::string>> refused;
  size_t end = 0;
  for (size_t begin = 0; begin < request.turns.size(); begin = end) {
    end = begin == 0 && !is_fork(request) ? request.turns.size() : end_of_branch(request, begin);
    const int64_t needed = state.needs.alone(request, begin), most = state.limits.most_slots();
    if (needed <= most || (begin > 0 && branch_settled(request, begin))) continue;
    if (begin == 0) end = request.turns.size();  // nothing goes without a fork's first turn
    for (size_t turn = begin; turn < end; ++turn)
      if (!settled(request.turns[turn]))
        refused.emplace_back(
            turn, fmt::format("needs {} KV slots {}, there are {}: raise kv.memory or use more "
                              "ranks (cp), then --retry-failed; a narrower kv.dtype needs another "
                              "output folder",
                              needed, where_, most));
  }
  return refused;
}

}  // namespace pecia::schedule
