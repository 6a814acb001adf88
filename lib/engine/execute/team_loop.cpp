// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/team_loop.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "lib/engine/execute/pass_reply.hpp"
#include "lib/engine/execute/yield_notes.hpp"
#include "lib/ranks/comm/mailbox.hpp"
#include "lib/ranks/comm/wait.hpp"

namespace pecia::execute {
namespace {

using report::Kind;
using report::ScopedSpan;

constexpr int root = 0;
constexpr int64_t no_pass = -1, saving_pass = -2;

/// Gives the core away while nothing happens: first a little, then for longer.
void wait_until(const std::function<bool()>& test) {
  comm::wait_until(
      test, [] { return "the wait for a plan"; }, [](bool) {}, std::chrono::seconds(0));
}

/// Executes a plan of this rank's team.
PassReply execute(const schedule::Plan& plan, Replica& replica, report::Recorder& recorder,
                  bool stop_requested) {
  // Set before the phase's span, which belongs to the pass.
  recorder.set_pass(plan.saves() ? no_pass : plan.number);
  PassReply answer{stop_requested, plan.number, -recorder.totals().flops, {}};
  {
    const ScopedSpan span(recorder, execute::phase_name(plan), Kind::phase);
    answer.outcome = replica.execute(plan);
  }
  recorder.set_pass(no_pass);
  answer.flops += recorder.totals().flops;
  return answer;
}

/// Every rank but 0: executes the plans that come.
void follow(comm::Communicator& ranks, Replica& replica, report::Recorder& recorder,
            const std::function<bool()>& stop_requested) {
  comm::Mailbox mail(ranks, root);
  bool said = false;  // that this rank was told to stop
  for (;;) {
    schedule::Plan plan;
    {
      const ScopedSpan span(recorder, "wait_for_plan", Kind::idle);
      wait_until([&] {
        replica.progress();
        if (!said && stop_requested()) {
          mail.send(to_bytes(PassReply{1, no_pass, 0, {}}));
          said = true;
        }
        const auto message = mail.receive();
        if (message) plan = from_bytes<schedule::Plan>(*message);
        return message.has_value();
      });
    }
    if (plan.last != 0) break;
    if (plan.receiving.has(replica.groups().cp_index))
      replica.execute(plan);  // nobody waits for it
    else
      mail.send(to_bytes(execute(plan, replica, recorder, stop_requested())));
  }
  replica.finish_copies();
  mail.send(to_bytes(PassReply{}));  // rank 0 expects a message until it has this one
  mail.flush();
}

/// Rank 0: plans, and executes the plans of its own instance.
class Lead {
 public:
  Lead(comm::Communicator& ranks, Replica& replica, report::Recorder& recorder, PlanSource& plans,
       const std::function<bool()>& stop_requested, const RunClock& clock)
      : ranks_(ranks),
        replica_(replica),
        recorder_(recorder),
        plans_(plans),
        stop_requested_(stop_requested),
        clock_(clock) {
    for (int rank = 1; rank < ranks.size(); ++rank) mail_.emplace_back(ranks, rank);
  }

  execute::ReplicaTotals run() {
    for (;;) {
      {
        const ScopedSpan span(recorder_, "wait_for_teams", Kind::idle);
        wait_until([&] {
          replica_.progress();
          serve();
          return !own_.empty() || ended_;
        });
      }
      if (own_.empty()) break;
      const schedule::Plan plan = std::move(own_.front());
      own_.pop_front();
      if (plan.receiving.has(replica_.groups().cp_index))
        replica_.execute(plan);
      else
        take(root, execute(plan, replica_, recorder_, stop_requested_()));
    }
    schedule::Plan last;
    last.last = 1;
    for (comm::Mailbox& mail : mail_) mail.send(to_bytes(last));
    replica_.finish_copies();
    for (comm::Mailbox& mail : mail_)  // a reply with stop_requested may come first
      wait_until([&] {
        const auto message = mail.receive();
        return message && from_bytes<PassReply>(*message).stop_requested == 0;
      });
    return totals_;
  }

  /// Does what `serve` does, but not more often than is worth while between two pieces of an op.
  void serve_now_and_then() {
    constexpr double pause_s = 2e-4;
    const double now = clock_.seconds();
    if (now - served_s_ >= pause_s) serve();
  }

  /// Takes in answers that have come, and sends plans to instances that are free. Returns soon where
  /// nothing has happened.
  void serve() {
    const double now = served_s_ = clock_.seconds();
    for (size_t i = 0; i < mail_.size(); ++i)
      while (const auto message = mail_[i].receive())
        take(static_cast<int>(i) + 1, from_bytes<PassReply>(*message));
    check_overdue(now);
    if (!news_ && now < look_again_s_) return;
    const bool news = std::exchange(news_, false);
    const int64_t begun = begun_;
    constexpr double pause_s = 0.02;  // then signals, limits and arrivals are checked again
    look_again_s_ = now + pause_s;
    plan(clock_.seconds());  // later than the ends of the passes that were taken in
    if (news || begun_ > begun) draw_curves();
    plans_.observer.ended(totals_);
  }

 private:
  struct UnderWay {
    schedule::Plan plan;
    double begin_s = 0, flops = 0;
    std::optional<double> expected_s;
    std::vector<int> awaited;                   ///< ranks
    std::map<int, schedule::Outcome> outcomes;  ///< by rank
  };

  void plan(double now) {
    stopping_ = draining_ || plans_.observer.stopping(any_stop_requested_ || stop_requested_());
    while (auto next = next_pass(plans_, stopping_, now, totals_)) {
      note_decisions(next->number);
      send(std::move(*next), now);
    }
    if (!under_way_.empty()) return;
    const auto arrival = plans_.source.next_arrival();
    if (!draining_ && (stopping_ || plans_.scheduler.out_of_time() || !arrival)) {
      draining_ = true;
      record(plans_, plans_.scheduler.partial(), totals_);
    }
    if (draining_) drain(now);
  }

  /// Keeps keys and values of one sequence after the other.
  void drain(double now) {
    std::optional<schedule::Plan> save;
    if (plans_.saves != nullptr) save = plans_.saves->next(plans_.scheduler, now, totals_);
    ended_ = !save;
    if (ended_) return;
    save->number = saving_pass;
    send(std::move(*save), now);
  }

  /// Notes in the trace what was decided for a pass, with what else would have taken how long.
  void note_decisions(int64_t pass) {
    execute::note_yields(plans_.scheduler, pass, recorder_);
    for (schedule::Decision decision : plans_.scheduler.decisions()) {
      decision.numbers.emplace_back("of_pass", static_cast<double>(pass));
      recorder_.note(decision.name, std::move(decision.numbers), decision.chosen);
    }
  }

  void send(schedule::Plan plan, double now) {
    const bool computes = !plan.saves() && plan.restore.empty();
    UnderWay under_way{plan, now, 0, {}, {}, {}};
    if (computes) under_way.expected_s = plans_.scheduler.expected_seconds(plan);
    const attention::ReplicaGroups& groups = replica_.groups();
    const int block = groups.place.sp * groups.place.tp;
    const auto add_ranks = [&](const std::vector<int32_t>& instances, std::vector<int>& ranks) {
      for (int stage = 0; stage < groups.stages; ++stage)
        for (const int32_t instance : instances) {
          const int first = (stage * groups.cp + instance) * block;
          for (int rank = first; rank < first + block; ++rank) ranks.push_back(rank);
        }
    };
    for (const parallel::Team& team : plan.teams) add_ranks(team.instances, under_way.awaited);
    std::vector<int> all = under_way.awaited;
    add_ranks(plan.receiving.instances, all);
    if (computes) plans_.observer.planned(plan, under_way.expected_s);
    plans_.observer.begins(plan, totals_);
    const std::vector<std::byte> bytes = to_bytes(plan);
    for (const int rank : all)
      if (rank != root) mail_[rank - 1].send(bytes);
    if (std::ranges::count(all, root) > 0) own_.push_back(std::move(plan));
    const int64_t number = under_way.plan.number;
    under_way_.emplace(number, std::move(under_way));
    ++begun_;
  }

  /// What instances do and requests wait for, as curves in the trace.
  void draw_curves() {
    double reading = 0, answering = 0, widest = 0;
    for (const auto& [number, pass] : under_way_) {
      if (pass.plan.saves()) continue;
      const auto degree = static_cast<double>(pass.plan.teams.front().size());
      (execute::new_tokens(pass.plan).prompt > 0 ? reading : answering) += degree;
      widest = std::max(widest, degree);
    }
    recorder_.draw("instances", {{"reading prompts", reading}, {"making answers", answering}});
    recorder_.draw("widest team", {{"instances", widest}});
    recorder_.draw("requests", {{"running", static_cast<double>(plans_.scheduler.running())},
                                {"waiting", static_cast<double>(plans_.scheduler.waiting())}});
  }

  void take(int rank, PassReply answer) {
    any_stop_requested_ = any_stop_requested_ || answer.stop_requested != 0;
    news_ = true;
    if (answer.pass == no_pass) return;
    UnderWay& pass = under_way_.at(answer.pass);
    PECIA_CHECK(std::erase(pass.awaited, rank) == 1, "rank {} answers pass {}, which it is not in",
                rank, answer.pass);
    pass.flops += answer.flops;
    pass.outcomes.emplace(rank, std::move(answer.outcome));
    if (pass.awaited.empty()) finish(answer.pass);
  }

  void finish(int64_t number) {
    UnderWay pass = std::move(under_way_.extract(number).mapped());
    const double end = clock_.seconds();
    std::vector<schedule::Outcome> outcomes;
    for (auto& [rank, outcome] : pass.outcomes) outcomes.push_back(std::move(outcome));
    if (pass.plan.saves() || !pass.plan.restore.empty())
      plans_.saves->commit(pass.plan, outcomes, totals_);
    if (pass.plan.saves()) return;
    totals_.park_s += std::ranges::max(outcomes, {}, &schedule::Outcome::park_s).park_s;
    const std::vector<int64_t> answered = plans_.scheduler.commit(pass.plan, outcomes, end);
    if (outcomes.front().kv.done == 0)
      pass.plan.restore.clear();  // reading failed, so it was computed
    size_t instances = 0;
    for (const parallel::Team& team : pass.plan.teams) instances += team.instances.size();
    counter_.count(
        pass.plan,
        {pass.begin_s, end, pass.flops,
         static_cast<double>(instances) / static_cast<double>(replica_.groups().cp), answered},
        totals_);
    if (pass.plan.restore.empty() && replica_.groups().stages == 1)
      execute::count_team(pass.plan, pass.begin_s, end, pass.expected_s, answered, totals_.elastic);
    totals_.elastic.scale_ups = plans_.scheduler.scale_ups();
    record(plans_, plans_.scheduler.take_finished(), totals_);
  }

  void check_overdue(double now) const {
    const auto limit_s = static_cast<double>(ranks_.wait_timeout().count());
    if (limit_s == 0) return;
    for (const auto& [number, pass] : under_way_)
      if (now - pass.begin_s > limit_s)
        fail<SystemError>(
            "pass {} of {} has not ended for {} s; ranks {} of the replica have not "
            "answered",
            number, pass.plan.teams.front().text(), limit_s, fmt::join(pass.awaited, ", "));
  }

  comm::Communicator& ranks_;
  Replica& replica_;
  report::Recorder& recorder_;
  PlanSource& plans_;
  const std::function<bool()>& stop_requested_;
  const RunClock& clock_;
  std::deque<comm::Mailbox> mail_;  ///< of ranks 1, 2, …
  std::map<int64_t, UnderWay> under_way_;
  std::deque<schedule::Plan> own_;  ///< plans that this rank has to execute
  execute::ReplicaTotals totals_;
  execute::PassCounter counter_;
  bool any_stop_requested_ = false, stopping_ = false, draining_ = false, ended_ = false;
  int64_t begun_ = 0;        ///< passes
  bool news_ = true;         ///< something has happened since the last plans
  double look_again_s_ = 0;  ///< when to plan although nothing has happened
  double served_s_ = 0;      ///< when answers were last looked for
};

/// What the replica calls while it computes, as long as this object lives.
struct Polling {
  Polling(Replica& computing, std::function<void()> poll) : replica(computing) {
    replica.while_computing(std::move(poll));
  }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;
  ~Polling() {
    replica.while_computing([] {});
  }

  Replica& replica;
};

}  // namespace

execute::ReplicaTotals run_teams(comm::Communicator& ranks, Replica& replica,
                                 report::Recorder& recorder, PlanSource* plans,
                                 const std::function<bool()>& stop_requested,
                                 std::function<void()> poll, const RunClock& clock) {
  if (plans == nullptr) {
    follow(ranks, replica, recorder, stop_requested);
    return {};
  }
  Lead lead(ranks, replica, recorder, *plans, stop_requested, clock);
  const Polling polling(replica, [&, poll = std::move(poll)] {
    if (poll) poll();
    lead.serve_now_and_then();
  });
  return lead.run();
}

}  // namespace pecia::execute
