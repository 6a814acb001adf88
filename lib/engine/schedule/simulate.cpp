// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/pipeline.hpp"
#include "lib/engine/schedule/scheduler.hpp"

namespace pecia::schedule {
namespace {

constexpr int32_t any_token = 0, last_token = 1;

batch::Request request_of(const SimulatedRequest& simulated, int64_t first_row) {
  PECIA_CHECK(!simulated.turns.empty(), "a request without turns");
  batch::Request request;
  request.followup = simulated.followup;
  request.arrival_s = simulated.arrival_s.value_or(0);
  for (const SimulatedTurn& of : simulated.turns) {
    batch::Turn& turn = request.turns.emplace_back();
    turn.row = first_row++;
    turn.tokens.assign(of.prompt_tokens, any_token);
    turn.max_new_tokens = static_cast<int32_t>(std::max(of.answer_tokens, of.max_new_tokens));
    turn.random_key = static_cast<uint64_t>(turn.row);  // which plans have
    turn.goes_on = of.goes_on;
    turn.shared_tokens = static_cast<int32_t>(of.shared_tokens);
    turn.stem_end_tokens = static_cast<int32_t>(of.stem_end_tokens);
  }
  if (simulated.is_joined()) request.turns.front().row = batch::Turn::no_row;
  return request;
}

struct Answer {
  size_t request = 0;
  int64_t tokens = 0;
  double last_token_s = 0;
};
using Answers = std::unordered_map<int64_t, Answer*>;  ///< of their present turns, by sequence

Outcome outcome_of(const Plan& plan, const Answers& answers) {
  Outcome outcome;
  for (const PlanItem& item : plan.items) {
    if (item.sampled_index < 0) continue;
    const bool last = item.sampled_index + 1 == answers.at(item.rows.sequence)->tokens;
    outcome.sampled.which.push_back(static_cast<int32_t>(outcome.sampled.which.size()));
    outcome.sampled.tokens.push_back(last ? last_token : any_token);
    outcome.sampled.logprobs.push_back(0);
  }
  return outcome;
}

struct UnderWay {
  double end_s = 0;
  Plan plan;
  bool operator>(const UnderWay& other) const { return end_s > other.end_s; }
};

struct Replica {
  explicit Replica(const SchedulerLimits& limits) : scheduler(limits) {}

  Scheduler scheduler;
  std::vector<UnderWay> under_way;  ///< a heap
  Answers answers;
  std::vector<double>
      stage_free_s;      ///< when each stage has done what was planned, where plans overlap
  bool refuses = false;  ///< has no room for the next request, until its scheduler does something
  bool idle = false;     ///< had nothing to begin, and nothing has been added since
  double prefill_s = 0, decode_s = 0;

  double first_end_s() const {
    return under_way.empty() ? std::numeric_limits<double>::infinity() : under_way.front().end_s;
  }
  int64_t load() const { return scheduler.running() + scheduler.waiting(); }
};

class Play {
 public:
  Play(const SchedulerLimits& limits, const PassSeconds& seconds,
       const std::vector<SimulatedRequest>& requests, int replicas, const Around& around)
      : elastic_(limits.elastic),
        stage_work_(limits.stage_work),
        head_work_(limits.head_work),
        plans_at_once_(limits.elastic ? std::numeric_limits<int64_t>::max()
                                      : limits.plans_at_once()),
        ring_size_(limits.ring_size),
        parking_s_(limits.parking_s),
        tbt_s_(limits.tbt_s.value_or(-1)),
        seconds_(seconds),
        requests_(requests),
        around_(around),
        open_(replicas) {
    for (int i = 0; i < replicas; ++i) {
      replicas_.emplace_back(limits);
      replicas_.back().stage_free_s.resize(stage_work_.size());
    }
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    result_.prompts.resize(ring_size_), result_.answers.resize(ring_size_);
    result_.ttft_s.assign(requests.size(), unknown);
    result_.latency_s.assign(requests.size(), unknown);
    result_.longest_gap_s.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      request_of_row_[std::ssize(turns_) + (requests[i].is_joined() ? 1 : 0)] = i;
      for (const SimulatedTurn& turn : requests[i].turns) turns_.push_back({i, turn.answer_tokens});
    }
  }

  Simulation run() {
    for (;;) {
      begin_passes();
      const double arrival_s = next_arrival_s();
      if (!std::isinf(arrival_s) && (ends_.empty() || arrival_s <= ends_.begin()->first)) {
        now_ = arrival_s;
      } else if (!ends_.empty()) {
        end_pass(ends_.begin()->second);
      } else {
        PECIA_CHECK(next_ == requests_.size(), "request {} of the simulation cannot begin", next_);
        for (const Replica& replica : replicas_) {
          result_.prefill_s = std::max(result_.prefill_s, replica.prefill_s);
          result_.decode_s = std::max(result_.decode_s, replica.decode_s);
          result_.sharing += replica.scheduler.sharing();
          result_.demand += replica.scheduler.demand();
        }
        return std::move(result_);
      }
    }
  }

 private:
  /// When the next request comes; infinite where it is there already, or there is none.
  double next_arrival_s() const {
    constexpr double none = std::numeric_limits<double>::infinity();
    if (next_ == requests_.size()) return none;
    const double arrival_s = requests_[next_].arrival_s.value_or(now_);
    return arrival_s > now_ ? arrival_s : none;
  }

  /// Gives requests that are there to replicas with room, in their order: each to the replica with
  /// the fewest of those that have room for it.
  void deal() {
    while (open_ > 0 && next_ < requests_.size() && std::isinf(next_arrival_s())) {
      const SimulatedRequest& next = requests_[next_];
      if (!head_) head_ = request_of(next, row_);
      Replica* chosen = nullptr;
      for (Replica& replica : replicas_) {
        if (replica.refuses) continue;
        const bool takes = next.arrival_s ? replica.scheduler.has_room_for(*head_)
                                          : replica.scheduler.wants_more();
        set_refuses(replica, !takes);
        if (takes && (chosen == nullptr || replica.load() < chosen->load())) chosen = &replica;
      }
      if (chosen == nullptr) return;
      chosen->scheduler.add(std::move(*head_), now_);
      chosen->idle = false;
      head_.reset();
      take_finished(*chosen);  // a request that is refused
      row_ += std::ssize(next.turns);
      ++next_;
      if (next.arrival_s)  // the one after it may be smaller
        for (Replica& replica : replicas_) set_refuses(replica, false);
    }
  }

  void begin_passes() {
    for (bool begins = true; begins;) {
      begins = false;
      for (size_t index = 0; index < replicas_.size(); ++index) {
        Replica& replica = replicas_[index];
        deal();
        const bool at_work = std::ssize(replica.under_way) >= plans_at_once_;
        if (!elastic_ && (replica.idle || at_work)) continue;
        std::optional<Plan> plan;
        call(Call::next, [&] { plan = replica.scheduler.next(now_); });
        set_refuses(replica, false);
        replica.idle = !plan;
        if (!plan) continue;
        replica.scheduler.take_yields();  // nobody reads the journal
        begins = true;
        ++result_.passes;
        const auto [prompts, answers] = busiest_work(*plan);
        const size_t degree = plan->teams.front().size();
        result_.prompts[degree - 1] += prompts, result_.answers[degree - 1] += answers;
        for (const int64_t sequence : plan->removed) replica.answers.erase(sequence);
        for (const TurnStart& turn : plan->turns)
          replica.answers[turn.sequence] = &turns_[turn.random_key];
        const double moved = static_cast<double>(replica.scheduler.moved_tokens(*plan)) /
                             (elastic_ ? 1 : ring_size_);  // dealt evenly to all ranks
        const double seconds = seconds_(*plan) + parking_s_ * moved;
        const auto stages = static_cast<double>(std::max<size_t>(1, stage_work_.size()));
        result_.busy_s += seconds * static_cast<double>(degree) / ring_size_ / stages;
        const bool reads = std::ranges::any_of(
            plan->items, [](const PlanItem& item) { return item.rows.is_shared(); });
        (reads ? replica.prefill_s : replica.decode_s) += seconds / stages;
        ends_.erase({replica.first_end_s(), index});
        const double end_s = end_of(replica, *plan, seconds);
        replica.under_way.push_back({end_s, std::move(*plan)});
        std::push_heap(replica.under_way.begin(), replica.under_way.end(), std::greater<>());
        ends_.insert({replica.first_end_s(), index});
      }
    }
  }

  /// When a pass ends that begins now and takes this long by itself. In stages it goes through each
  /// behind the pass before it.
  double end_of(Replica& replica, const Plan& plan, double seconds) const {
    if (stage_work_.empty()) return now_ + seconds;
    int64_t outputs = 0;
    for (const PlanItem& item : plan.items) outputs += item.samples();
    const std::vector<double> shares =
        shares_of_stages(stage_work_, head_work_, count_rows(plan), outputs);
    double at = now_;
    for (size_t stage = 0; stage < shares.size(); ++stage)
      at = replica.stage_free_s[stage] =
          std::max(at, replica.stage_free_s[stage]) + shares[stage] * seconds;
    return at;
  }

  void set_refuses(Replica& replica, bool refuses) {
    if (replica.refuses != refuses) open_ += refuses ? -1 : 1;
    replica.refuses = refuses;
  }

  void end_pass(size_t index) {
    Replica& replica = replicas_[index];
    ends_.erase({replica.first_end_s(), index});
    std::pop_heap(replica.under_way.begin(), replica.under_way.end(), std::greater<>());
    const UnderWay ended = std::move(replica.under_way.back());
    replica.under_way.pop_back();
    if (!replica.under_way.empty()) ends_.insert({replica.first_end_s(), index});
    now_ = result_.seconds = ended.end_s;
    const std::vector<Outcome> outcomes = {outcome_of(ended.plan, replica.answers)};
    for (const PlanItem& item : ended.plan.items)
      if (item.sampled_index >= 0)
        count_token(*replica.answers.at(item.rows.sequence), item.sampled_index == 0);
    call(Call::commit, [&] { replica.scheduler.commit(ended.plan, outcomes, now_); });
    set_refuses(replica, false);
    replica.idle = false;
    take_finished(replica);
  }

  /// Notes the time since the token before it.
  void count_token(Answer& answer, bool first) {
    const double gap_s = now_ - std::exchange(answer.last_token_s, now_);
    if (first) return;
    double& longest_s = result_.longest_gap_s[answer.request];
    longest_s = std::max(longest_s, gap_s);
    result_.gaps.add(gap_s);
    result_.gaps_kept += gap_s <= tbt_s_;
  }

  void take_finished(Replica& replica) {
    for (const batch::Finished& finished : replica.scheduler.take_finished()) {
      const bool done = finished.state == io::TurnState::done;
      ++(done ? result_.answered : result_.refused);
      const auto request = request_of_row_.find(finished.row);
      if (!done || request == request_of_row_.end()) continue;
      result_.ttft_s[request->second] = finished.result.ttft_s;
      result_.latency_s[request->second] = finished.result.ttft_s + finished.result.decode_s;
    }
  }

  void call(Call which, const std::function<void()>& work) {
    around_ ? around_(which, work) : work();
  }

  bool elastic_;
  std::vector<double> stage_work_;
  double head_work_;
  int64_t plans_at_once_;  ///< of a replica
  int ring_size_;
  double parking_s_, tbt_s_;
  const PassSeconds& seconds_;
  const std::vector<SimulatedRequest>& requests_;
  const Around& around_;
  std::deque<Replica> replicas_;
  int64_t open_;  ///< replicas that do not refuse the next request
  std::set<std::pair<double, size_t>>
      ends_;  ///< of replicas in a pass: when the first of theirs ends
  std::map<int64_t, size_t> request_of_row_;  ///< by the row of its first answer
  std::vector<Answer> turns_;                 ///< by row
  size_t next_ = 0;                           ///< first request that no scheduler has
  int64_t row_ = 0;                           ///< of that request
  std::optional<batch::Request> head_;        ///< that request, once it is there
  double now_ = 0;
  Simulation result_;
};

}  // namespace

Simulation simulate(const SchedulerLimits& limits, const PassSeconds& seconds,
                    const std::vector<SimulatedRequest>& requests, int replicas,
                    const Around& around) {
  PECIA_CHECK(!limits.time && replicas >= 1, "a simulation of {} replicas with a time limit",
              replicas);
  SchedulerLimits plain = limits;
  plain.stop_token_ids = {last_token};
  plain.logprobs = plain.prompt_logprobs = 0;
  return Play(plain, seconds, requests, replicas, around).run();
}

Simulation simulate(const SchedulerLimits& limits, const TeamTimes& times,
                    const std::vector<SimulatedRequest>& requests, int replicas,
                    const Around& around) {
  const PassSeconds seconds = [&](const Plan& plan) { return expected_seconds(plan, times); };
  if (limits.elastic) return simulate(limits, seconds, requests, replicas, around);
  // A pass of all instances is known to the scheduler by its work on all of them.
  const auto fit_of = [&](PassKind kind) {
    const auto [pass_s, row_s, pair_s] = times.rates(limits.ring_size, kind);
    return RateFit({pass_s, row_s / limits.ring_size, pair_s / limits.ring_size});
  };
  SchedulerLimits knowing = limits;
  knowing.pass_times = {fit_of(PassKind::prefill), fit_of(PassKind::decode)};
  return simulate(knowing, seconds, requests, replicas, around);
}

}  // namespace pecia::schedule
