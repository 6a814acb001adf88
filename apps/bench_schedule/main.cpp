// SPDX-License-Identifier: Apache-2.0
/// Times the decisions of elastic teams: the scheduler plans a batch for many instances, and passes
/// last as long as a model of their times says. Nothing is computed, so one core plays any number of
/// instances. It counts the host's time of Scheduler::next and of Scheduler::commit. The requests
/// are all there from the start, and nothing but slots keeps them from beginning, so the first
/// decisions are those with the most requests.
///
/// The model is of a Llama-2-7B with one A800-80GB for each instance (half of 312 TFLOP/s of bf16,
/// 2 TB/s, 50 GB/s between instances). A third of the requests each is as long as those of ShareGPT
/// (4 to 2300 tokens), L-Eval (2700 to 210 000) and LV-Eval (15 000 to 497 000), evenly over the
/// logarithm of the length. Source: LoongServe (models, machines and lengths of its evaluation).

#include <algorithm>
#include <chrono>
#include <cmath>
#include <queue>
#include <random>

#include "apps/bench_support/results.hpp"
#include "apps/command_line/options.hpp"
#include "lib/schedule/scheduler.hpp"

namespace pecia::bench {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::PassKind;
using schedule::Plan;

struct Options {
  std::vector<int64_t> instances = {4, 16, 64};
  int64_t requests = 512, max_tokens = 497000;
};

void add_options(CLI::App& app, Options& options) {
  const auto add = [&](const char* name, command_line::Target into, const char* help) {
    command_line::add_option(app, {.name = name,
                                   .into = into,
                                   .help = help,
                                   .show_default = true,
                                   .sign = command_line::Sign::positive});
  };
  add("--instances", &options.instances, "Instances");
  add("--requests", &options.requests, "Requests, which wait from the beginning on");
  add("--max-tokens", &options.max_tokens, "Cut prompts to this length");
}

constexpr int64_t kv_bytes_per_token = 2 * 32 * 4096 * 2;
constexpr int64_t kv_tokens = int64_t{60'000'000'000} / kv_bytes_per_token;

schedule::TeamTimes team_times(int64_t instances) {
  const schedule::PassTimes alone{schedule::RateFit({7e-3, 86e-6, 3.4e-9}),
                                  schedule::RateFit({7e-3, 10e-6, 0.26e-6})};
  return {alone,
          {.message_s = 20e-6,
           .bytes_per_second = 50e9,
           .kv_bytes_per_token = static_cast<double>(kv_bytes_per_token),
           .query_bytes_per_row = 4.0 * 32 * 32 * (2 * 128 + 1),
           .layers = 32},
          static_cast<int>(instances)};
}

std::vector<schedule::Request> make_requests(const Options& options) {
  constexpr uint64_t seed = 20261123;
  constexpr std::array<std::pair<double, double>, 3> kinds = {
      {{4, 2300}, {2700, 210000}, {15000, 497000}}};
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<schedule::Request> requests(options.requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [least, most] = kinds[i % kinds.size()];
    const auto tokens = static_cast<int64_t>(least * std::pow(most / least, uniform()));
    requests[i].turns.resize(1);
    schedule::Turn& turn = requests[i].turns.front();
    turn.row = static_cast<int64_t>(i);
    turn.tokens.assign(std::min(tokens, options.max_tokens), 7);
    turn.max_new_tokens = static_cast<int32_t>(20 + random() % 300);
  }
  return requests;
}

schedule::SchedulerLimits limits_of(int64_t instances, int64_t requests, job::Objective objective) {
  schedule::SchedulerLimits limits;
  limits.ring_size = static_cast<int>(instances);
  limits.elastic = true;
  limits.objective = objective;
  limits.kv_tokens = kv_tokens;
  limits.max_sequences = requests;
  limits.max_batch_tokens = 8192;
  limits.max_positions = 1 << 20;
  limits.vocab = 32000;
  limits.team_times = team_times(instances);
  return limits;
}

/// Seconds of the plan's pass by the model.
double seconds_of(const Plan& plan, const schedule::TeamTimes& times) {
  const auto [prompts, answers] = work_of(plan);
  const parallel::Team& team = plan.teams.front();
  const bool reads = prompts.rows > 0;
  schedule::PassWork busiest = (reads ? prompts : answers).shared(reads ? team.workers() : 1);
  if (!reads) busiest.rows /= team.workers(), busiest.pairs /= team.size();
  return times.seconds(team.size(), reads ? PassKind::prefill : PassKind::decode, busiest);
}

schedule::Outcome outcome_of(const Plan& plan) {
  schedule::Outcome outcome;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (plan.items[i].sampled_index < 0) continue;
    outcome.sampled.which.push_back(static_cast<int32_t>(i));
    outcome.sampled.tokens.push_back(7);
    outcome.sampled.logprobs.push_back(0);
  }
  return outcome;
}

struct Decided {
  std::vector<double> decisions_us;  ///< of one call of next, and of the commit before it
  int64_t passes = 0, answered = 0;
  double run_s = 0;  ///< by the model
};

Decided decide(int64_t instances, const std::vector<schedule::Request>& requests,
               job::Objective objective) {
  const schedule::TeamTimes times = team_times(instances);
  schedule::Scheduler scheduler(limits_of(instances, std::ssize(requests), objective));
  for (const schedule::Request& request : requests) scheduler.add(request, 0);
  struct UnderWay {
    double end_s;
    Plan plan;
    bool operator>(const UnderWay& other) const { return end_s > other.end_s; }
  };
  std::vector<UnderWay> under_way;  // a heap
  Decided found;
  double us = 0;
  const auto timed = [&](const auto& work) {
    const auto begin = Clock::now();
    auto result = work();
    us += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    return result;
  };
  for (;;) {
    for (;;) {
      auto plan = timed([&] { return scheduler.next(found.run_s); });
      found.decisions_us.push_back(std::exchange(us, 0));
      if (!plan) break;
      ++found.passes;
      const double end_s = found.run_s + seconds_of(*plan, times);
      under_way.push_back({end_s, std::move(*plan)});
      std::push_heap(under_way.begin(), under_way.end(), std::greater<>());
    }
    if (under_way.empty()) break;
    std::pop_heap(under_way.begin(), under_way.end(), std::greater<>());
    const UnderWay ended = std::move(under_way.back());
    under_way.pop_back();
    found.run_s = ended.end_s;
    timed([&] {
      scheduler.commit(ended.plan, {outcome_of(ended.plan)}, found.run_s);
      return 0;
    });
    found.answered += std::ssize(scheduler.take_finished());
  }
  return found;
}

void run(const Session& session, const Options& options) {
  if (session.world.size() > 1)
    fail<InputError>("bench_schedule plays all instances itself; it was started with {} ranks",
                     session.world.size());
  Results results(session, fmt::format("decisions of elastic teams, {} requests", options.requests),
                  {{"requests", options.requests}});
  results.columns({"instances", " objective", "   us mean", "   us p99", "    us max", " passes",
                   "run s (model)", "share of run"});
  const std::vector<schedule::Request> requests = make_requests(options);
  for (const int64_t instances : options.instances)
    for (const auto& [name, objective] :
         {std::pair("throughput", job::Objective::throughput), {"ttft", job::Objective::ttft}}) {
      Decided found = decide(instances, requests, objective);
      std::vector<double>& us = found.decisions_us;
      std::sort(us.begin(), us.end());
      double sum = 0;
      for (const double each : us) sum += each;
      const double mean = sum / static_cast<double>(us.size());
      const double p99 = us[us.size() * 99 / 100], most = us.back();
      const double share = 1e-6 * sum / found.run_s;
      results.row({std::to_string(instances), name, fmt::format("{:.1f}", mean),
                   fmt::format("{:.0f}", p99), fmt::format("{:.0f}", most),
                   std::to_string(found.passes), fmt::format("{:.0f}", found.run_s),
                   fmt::format("{:.2f} %", 100 * share)});
      results.write({{"instances", instances},
                     {"objective", name},
                     {"decision_us", {{"mean", mean}, {"p99", p99}, {"max", most}}},
                     {"passes", found.passes},
                     {"run_s", found.run_s},
                     {"share_of_run", share}});
      if (session.options.check && found.answered != options.requests)
        fail<SystemError>("{} of {} requests were answered", found.answered, options.requests);
    }
  if (session.options.check) results.line("checked: every request was answered");
}

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) {
  using namespace pecia::bench;
  Options options;
  return run_benchmark({"bench_schedule", "Times the decisions of elastic teams, with no model",
                        [&](CLI::App& app) { add_options(app, options); },
                        [&](const Session& session) { run(session, options); }},
                       argc, argv);
}
