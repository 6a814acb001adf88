// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/elastic_allocate.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "lib/core/error.hpp"

namespace pecia::schedule {
namespace {

void check_demand(const std::vector<Candidate>& candidates, const std::vector<DecodeGroup>& groups,
                  const PrefillDemand& demand) {
  PECIA_CHECK(
      demand.requests >= 1 && demand.slots >= 0 && !demand.seconds.empty() && demand.wait_s >= 0,
      "{} requests with {} slots, {} times, {} s", demand.requests, demand.slots,
      demand.seconds.size(), demand.wait_s);
  std::set<int32_t> seen;
  for (const Candidate& c : candidates) {
    PECIA_CHECK(seen.insert(c.instance).second, "instance {} stands twice", c.instance);
    PECIA_CHECK(c.group >= -1 && c.group < static_cast<int32_t>(groups.size()),
                "instance {} is in group {} of {}", c.instance, c.group, groups.size());
    PECIA_CHECK(c.free_slots >= 0 && c.kv_tokens >= 0 && c.reserved_tokens >= 0,
                "instance {} has {} free slots, {} tokens, {} reserved", c.instance, c.free_slots,
                c.kv_tokens, c.reserved_tokens);
  }
  for (const DecodeGroup& group : groups)
    PECIA_CHECK(group.rows >= 0 && group.context_tokens >= 0 && group.passes_left >= 0,
                "{} rows with {} tokens and {} passes left", group.rows, group.context_tokens,
                group.passes_left);
}

/// Takes one instance after the other, and keeps what is left of candidates and groups.
class Allocator {
 public:
  Allocator(const TeamTimes& times, std::vector<Candidate> candidates,
            const std::vector<DecodeGroup>& groups, const PrefillDemand& demand)
      : times_(times),
        left_(std::move(candidates)),
        groups_(groups),
        delayed_(groups.size(), false),
        demand_(demand),
        weight_(static_cast<double>(demand.requests)) {
    std::sort(left_.begin(), left_.end(),
              [](const Candidate& a, const Candidate& b) { return a.instance < b.instance; });
  }

  void take_idle() {
    std::vector<Candidate> idle = in_order([](const Candidate& c) { return c.group < 0; },
                                           [](const Candidate& c) { return -c.free_slots; });
    int best = 1;
    for (int k = 2; k <= static_cast<int>(idle.size()); ++k)
      if (seconds_on(k) < seconds_on(best)) best = k;
    for (const Candidate& c : idle) {
      const bool wanted = taken() < best;
      const InstanceChoice choice{c.instance, InstanceSource::idle, gain_s(), 0, !wanted, {}};
      if (wanted || (short_of_slots() && c.free_slots > 0)) {
        take(c, choice, c.free_slots);
      } else {
        reject(choice);
      }
    }
  }

  void take_shrunk() {
    for (const Candidate& first : in_order([](const Candidate& c) { return c.group >= 0; },
                                           [](const Candidate& c) { return c.kv_tokens; })) {
      const Candidate c = *find(first.instance);  // an earlier one may have moved tokens to it
      InstanceChoice choice{c.instance, InstanceSource::shrunk, gain_s(), 0, false, {}};
      choice.moves = moves_of(c);
      if (choice.moves.empty()) continue;  // the group has no other instance, or too few slots
      choice.cost_s = shrinking_s(c);
      const int64_t slots = c.free_slots + c.kv_tokens + c.reserved_tokens;
      if (!worth_taking(choice, slots)) {
        reject(choice);
        continue;
      }
      take(c, choice, slots);
      for (const KvShare& move : choice.moves) {
        Candidate& other = *find(move.instance);
        other.free_slots -= move.tokens + move.answer_tokens;
        other.kv_tokens += move.tokens, other.reserved_tokens += move.answer_tokens;
      }
    }
  }

  void take_preempted() {
    for (const Candidate& c : in_order([](const Candidate& c) { return c.group >= 0; },
                                       [](const Candidate& c) { return -c.free_slots; })) {
      const auto rows = static_cast<double>(groups_[c.group].rows);
      InstanceChoice choice{c.instance, InstanceSource::preempted, gain_s(), 0, false, {}};
      if (!delayed_[c.group]) choice.cost_s = rows * seconds_on(taken() + 1);
      if (!worth_taking(choice, c.free_slots)) {
        reject(choice);
        continue;
      }
      take(c, choice, c.free_slots);
      if (!delayed_[c.group]) weight_ += rows;
      delayed_[c.group] = true;
    }
  }

  Allocation result() {
    double balance_s = 0;
    bool all_idle = taken() > 0;
    for (const InstanceChoice& choice : result_.taken) {
      balance_s += choice.gain_s - choice.cost_s;
      all_idle = all_idle && choice.source == InstanceSource::idle;
    }
    if (short_of_slots()) {
      result_.end = AllocationEnd::too_few_slots;
    } else if (!all_idle && !(balance_s > 0)) {
      result_.end = AllocationEnd::costs_more;
    }
    result_.seconds = seconds_on(taken()), result_.rejected_s = seconds_on(0);
    if (result_.end == AllocationEnd::taken) return std::move(result_);
    std::swap(result_.seconds, result_.rejected_s);
    result_.taken.insert(result_.taken.end(), result_.rejected.begin(), result_.rejected.end());
    result_.rejected = std::move(result_.taken);
    result_.taken.clear();
    return std::move(result_);
  }

 private:
  int taken() const { return static_cast<int>(result_.taken.size()); }
  bool short_of_slots() const { return slots_ < demand_.slots; }
  double seconds_on(int instances) const {
    if (instances == 0) return demand_.wait_s + demand_.seconds.front();
    return demand_.seconds[std::min<size_t>(instances, demand_.seconds.size()) - 1];
  }
  /// What one instance more gains.
  double gain_s() const { return weight_ * (seconds_on(taken()) - seconds_on(taken() + 1)); }

  /// The candidates of a kind, those with the least key first.
  template <typename Kind, typename Key>
  std::vector<Candidate> in_order(const Kind& kind, const Key& key) const {
    std::vector<Candidate> result;
    std::copy_if(left_.begin(), left_.end(), std::back_inserter(result), kind);
    std::stable_sort(result.begin(), result.end(),
                     [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
    return result;
  }
  std::vector<Candidate>::iterator find(int32_t instance) {
    return std::find_if(left_.begin(), left_.end(),
                        [&](const Candidate& c) { return c.instance == instance; });
  }
  std::vector<Candidate> others_of(const Candidate& c) const {
    return in_order(
        [&](const Candidate& o) { return o.group == c.group && o.instance != c.instance; },
        [](const Candidate&) { return 0; });
  }

  /// Where an instance's tokens would go; empty if its group cannot do without it.
  std::vector<KvShare> moves_of(const Candidate& c) const {
    std::vector<int64_t> free_slots;
    const std::vector<Candidate> others = others_of(c);
    int64_t room = 0;
    for (const Candidate& other : others)
      free_slots.push_back(other.free_slots), room += other.free_slots;
    if (others.empty() || room < c.kv_tokens + c.reserved_tokens) return {};
    const std::vector<int64_t> tokens = shares_by_free_slots(c.kv_tokens, free_slots);
    for (size_t i = 0; i < tokens.size(); ++i) free_slots[i] -= tokens[i];
    const std::vector<int64_t> reserved = shares_by_free_slots(c.reserved_tokens, free_slots);
    std::vector<KvShare> moves;
    for (size_t i = 0; i < tokens.size(); ++i)
      moves.push_back({others[i].instance, tokens[i], reserved[i]});
    return moves;
  }

  /// What its group pays when an instance leaves it.
  double shrinking_s(const Candidate& c) const {
    const DecodeGroup& group = groups_[c.group];
    const int rest = static_cast<int>(others_of(c).size());
    const auto pass_s = [&](int degree) {
      return masters(times_, degree, group.rows, group.context_tokens).seconds;
    };
    const double moving_s = static_cast<double>(c.kv_tokens) * times_.costs().kv_bytes_per_token /
                            times_.costs().bytes_per_second;
    const double slower_s = std::max(0.0, pass_s(rest) - pass_s(rest + 1));
    return static_cast<double>(group.rows) * (moving_s + group.passes_left * slower_s);
  }

  bool worth_taking(InstanceChoice& choice, int64_t slots) const {
    if (choice.gain_s > choice.cost_s) return true;
    choice.for_slots = short_of_slots() && slots > 0;
    return choice.for_slots;
  }
  void take(const Candidate& c, const InstanceChoice& choice, int64_t slots) {
    slots_ += slots;
    left_.erase(find(c.instance));
    result_.taken.push_back(choice);
  }
  void reject(InstanceChoice choice) {
    choice.for_slots = false;
    const bool first =
        std::none_of(result_.rejected.begin(), result_.rejected.end(),
                     [&](const InstanceChoice& other) { return other.source == choice.source; });
    if (first) result_.rejected.push_back(std::move(choice));
  }

  const TeamTimes& times_;
  std::vector<Candidate> left_;  ///< by number
  const std::vector<DecodeGroup>& groups_;
  std::vector<bool> delayed_;
  const PrefillDemand& demand_;
  double weight_;  ///< requests, and answers that wait for them
  int64_t slots_ = 0;
  Allocation result_;
};

}  // namespace

Allocation allocate(const TeamTimes& times, const std::vector<Candidate>& candidates,
                    const std::vector<DecodeGroup>& groups, const PrefillDemand& demand) {
  check_demand(candidates, groups, demand);
  Allocator allocator(times, candidates, groups, demand);
  allocator.take_idle();
  allocator.take_shrunk();
  allocator.take_preempted();
  return allocator.result();
}

}  // namespace pecia::schedule
