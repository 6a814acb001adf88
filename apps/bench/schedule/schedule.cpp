// SPDX-License-Identifier: Apache-2.0
/// Times the decisions of elastic teams: the scheduler plans a batch for many instances, and passes
/// last as long as a model of their times says. Nothing is computed, so one core plays any number of
/// instances. It counts the host's time of Scheduler::next and of Scheduler::commit. The requests are
/// all there from the start, and nothing but slots keeps them from beginning, so the first
/// decisions are those with the most requests.
///
/// The model is of a Llama-2-7B with one A800-80GB for each instance (half of 312 TFLOP/s of bf16,
/// 2 TB/s, 50 GB/s between instances). A third of the requests each is as long as those of ShareGPT
/// (4 to 2300 tokens), L-Eval (2700 to 210 000) and LV-Eval (15 000 to 497 000), evenly over the
/// logarithm of the length. Source: LoongServe (models, machines and lengths of its evaluation).

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "apps/bench/commands.hpp"
#include "apps/bench/schedule/dealing.hpp"
#include "apps/bench/schedule/plans.hpp"
#include "apps/bench/schedule/spread.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/engine/schedule/simulate.hpp"
#include "lib/run/spread_files.hpp"

namespace pecia::bench {
namespace {

struct ScheduleOptions {
  std::vector<int64_t> instances = {4, 16, 64};
  int64_t requests = 512, max_tokens = 497000;
  std::vector<int64_t> plan_ranks, plan_sequences = {1, 64, 256};
  std::vector<int64_t> spread_hosts, spread_gb = {16, 141};
  int64_t storage_gbs = 50;
  bool dealing = false;
};

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

std::vector<schedule::SimulatedRequest> make_requests(const ScheduleOptions& options) {
  constexpr uint64_t seed = 20261123;
  constexpr std::array<std::pair<double, double>, 3> kinds = {
      {{4, 2300}, {2700, 210000}, {15000, 497000}}};
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<schedule::SimulatedRequest> requests(options.requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [least, most] = kinds[i % kinds.size()];
    const auto tokens = static_cast<int64_t>(least * std::pow(most / least, uniform()));
    requests[i].turns = {
        {std::min(tokens, options.max_tokens), static_cast<int64_t>(20 + random() % 300)}};
    requests[i].arrival_s = 0;
  }
  return requests;
}

struct Decider {
  const char* scheduler;
  const char* objective;
  job::TeamScheduler by;
  job::Objective towards;
};
constexpr std::array<Decider, 4> deciders{
    {{"greedy", "throughput", job::TeamScheduler::greedy, job::Objective::throughput},
     {"greedy", "ttft", job::TeamScheduler::greedy, job::Objective::ttft},
     {"loongserve", "throughput", job::TeamScheduler::loongserve, job::Objective::throughput},
     {"loongserve", "ttft", job::TeamScheduler::loongserve, job::Objective::ttft}}};

schedule::SchedulerLimits limits_of_teams(int64_t instances, int64_t requests,
                                          const Decider& decider) {
  schedule::SchedulerLimits limits;
  limits.ring_size = static_cast<int>(instances);
  limits.elastic = true;
  limits.objective = decider.towards;
  limits.scheduler = decider.by;
  limits.kv_tokens = kv_tokens;
  limits.max_sequences = requests;
  limits.max_batch_tokens = 8192;
  limits.max_positions = 1 << 20;
  limits.vocab = 32000;
  limits.team_times = team_times(instances);
  return limits;
}

struct Decided {
  std::vector<double> decisions_us;  ///< of one call of next, and of the commit before it
  schedule::Simulation simulation;
};

Decided decide(int64_t instances, const std::vector<schedule::SimulatedRequest>& requests,
               const Decider& decider) {
  Decided found;
  double us = 0;
  const auto timed = [&](schedule::Call call, const std::function<void()>& work) {
    const Stopwatch watch;
    work();
    us += 1e6 * watch.seconds();
    if (call == schedule::Call::next) found.decisions_us.push_back(std::exchange(us, 0));
  };
  found.simulation = simulate(limits_of_teams(instances, std::ssize(requests), decider),
                              team_times(instances), requests, 1, timed);
  return found;
}

/// Of the modelled network: 5 µs for a message, and 12.5 GB/s (100 Gb/s).
constexpr double message_s = 5e-6, link_bytes_per_second = 12.5e9;

/// Each pass's plan goes to all ranks of its replica. Its bytes are those that a run would send; the
/// time is a model's.
void run_plans(const Session& session, const ScheduleOptions& options) {
  Results results(session, "plans and their broadcast (modelled), a ring of all ranks",
                  {{"message_us", 1e6 * message_s}, {"gbs", 1e-9 * link_bytes_per_second}});
  results.columns("ranks|sequences|prefill bytes|us|decode bytes|   us");
  for (const int64_t ranks : options.plan_ranks)
    for (const int64_t sequences : options.plan_sequences) {
      const PlanBytes bytes = plan_bytes(ranks, sequences);
      const auto us = [&](int64_t of_plan) {
        return 1e6 * tree_seconds(ranks, of_plan, message_s, link_bytes_per_second);
      };
      results.row("{}|{}|{}|{:.0f}|{}|{:.0f}", ranks, sequences, bytes.prefill, us(bytes.prefill),
                  bytes.decode, us(bytes.decode));
      results.write({{"ranks", ranks},
                     {"sequences", sequences},
                     {"bytes", {{"prefill", bytes.prefill}, {"decode", bytes.decode}}},
                     {"us", {{"prefill", us(bytes.prefill)}, {"decode", us(bytes.decode)}}}});
    }
}

/// What model.load: spread spares a file system, and what it takes.
void run_spread(const Session& session, const ScheduleOptions& options) {
  const LoadModel model{message_s, link_bytes_per_second,
                        1e9 * static_cast<double>(options.storage_gbs)};
  Results results(session, "loading weights by many hosts (modelled)",
                  {{"message_us", 1e6 * message_s},
                   {"gbs", 1e-9 * link_bytes_per_second},
                   {"storage_gbs", options.storage_gbs}});
  results.columns("hosts|GB|GB read, mapped|spread|s mapped|spread by trees|spread at least");
  for (const int64_t gigabytes : options.spread_gb)
    for (const int64_t hosts : options.spread_hosts) {
      const LoadSeconds found = load_seconds(hosts, gigabytes * 1'000'000'000,
                                             run::SpreadFiles::default_piece_bytes, model);
      results.row("{}|{}|{}|{}|{:.1f}|{:.1f}|{:.1f}", hosts, gigabytes, hosts * gigabytes,
                  gigabytes, found.mapped, found.trees, found.least);
      results.write(
          {{"hosts", hosts},
           {"gb", gigabytes},
           {"s", {{"mapped", found.mapped}, {"trees", found.trees}, {"least", found.least}}}});
    }
}

/// One decision of LoongServe's four steps with all requests waiting, which play no batch.
void run_dealing(const Session& session, const ScheduleOptions& options) {
  Results results(session, fmt::format("one dealing of {} requests", options.requests),
                  {{"requests", options.requests}});
  results.columns("instances|half of them answer| objective|      ms|begin|batches");
  std::vector<int64_t> prompts;
  for (const schedule::SimulatedRequest& request : make_requests(options))
    prompts.push_back(request.turns.front().prompt_tokens);
  for (const int64_t instances : options.instances)
    for (const bool half_busy : {false, true})
      for (const auto& [name, goal] : {std::pair("throughput", schedule::ReadingGoal::makespan),
                                       {"ttft", schedule::ReadingGoal::mean}}) {
        std::vector<double> ms;
        Dealing found;
        for (int run = 0; run < session.options.runs; ++run) {
          found = deal(static_cast<int>(instances), prompts, kv_tokens, team_times(instances), goal,
                       half_busy);
          ms.push_back(1e3 * found.seconds);
        }
        const double median = spread(ms).median;
        results.row("{}|{}|{}|{:.2f}|{}|{}", instances, half_busy ? "yes" : "no", name, median,
                    found.prompts, found.batches);
        results.write({{"instances", instances},
                       {"half_busy", half_busy},
                       {"objective", name},
                       {"ms", median},
                       {"begin", found.prompts},
                       {"batches", found.batches}});
      }
}

void run_schedule(const Session& session, const ScheduleOptions& options) {
  session.require_one_rank("it plays all instances itself");
  if (options.dealing) return run_dealing(session, options);
  if (!options.plan_ranks.empty()) return run_plans(session, options);
  if (!options.spread_hosts.empty()) return run_spread(session, options);
  Results results(session, fmt::format("decisions of elastic teams, {} requests", options.requests),
                  {{"requests", options.requests}});
  results.columns(
      "instances| scheduler| objective|   us mean|   us p99|us longest| passes|run s (model)|share "
      "of run");
  const std::vector<schedule::SimulatedRequest> requests = make_requests(options);
  for (const int64_t instances : options.instances)
    for (const Decider& decider : deciders) {
      std::vector<double> means, p99s, longest, shares;
      Decided found;
      for (int run = 0; run < session.options.runs; ++run) {
        found = decide(instances, requests, decider);
        std::vector<double>& us = found.decisions_us;
        std::sort(us.begin(), us.end());
        const double sum = std::accumulate(us.begin(), us.end(), 0.0);
        means.push_back(sum / static_cast<double>(us.size()));
        p99s.push_back(us[us.size() * 99 / 100]);
        longest.push_back(us.back());
        shares.push_back(1e-6 * sum / found.simulation.seconds);
      }
      const double mean = spread(means).median, p99 = spread(p99s).median;
      const double most = spread(longest).median, share = spread(shares).median;
      results.row("{}|{}|{}|{:.1f}|{:.0f}|{:.0f}|{}|{:.0f}|{:.2f} %", instances, decider.scheduler,
                  decider.objective, mean, p99, most, found.simulation.passes,
                  found.simulation.seconds, 100 * share);
      results.write({{"instances", instances},
                     {"scheduler", decider.scheduler},
                     {"objective", decider.objective},
                     {"decision_us", {{"mean", mean}, {"p99", p99}, {"longest", most}}},
                     {"passes", found.simulation.passes},
                     {"run_s", found.simulation.seconds},
                     {"share_of_run", share}});
      const auto [answered, refused] =
          std::pair(found.simulation.answered, found.simulation.refused);
      if (session.options.check && (answered + refused != options.requests || answered == 0))
        fail<SystemError>("{} of {} requests were answered, and {} are too long", answered,
                          options.requests, refused);
    }
  if (session.options.check) results.line("checked: every request that fits was answered");
}

}  // namespace

void add_schedule(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ScheduleOptions>();
  Command command(app, chosen, "schedule", "Times the decisions of elastic teams, with no model",
                  [options](const Session& session) { run_schedule(session, *options); });
  command.positive("--instances", &options->instances, "Instances");
  command.positive("--requests", &options->requests, "Requests, which wait from the beginning on");
  command.flag("--dealing", &options->dealing,
               "Time one decision of LoongServe's steps in place of a batch");
  command.positive("--max-tokens", &options->max_tokens, "Cut prompts to this length");
  command.positive(
      "--plan-ranks", &options->plan_ranks,
      "Instead, count bytes of plans for a ring of this number of ranks, and model their "
      "broadcast");
  command.positive("--plan-sequences", &options->plan_sequences, "Sequences of these plans");
  command.positive(
      "--spread-hosts", &options->spread_hosts,
      "Instead, model how long this number of hosts takes to load weights, mapped and spread");
  command.positive("--spread-gb", &options->spread_gb, "1e9 bytes of these weights");
  command.positive("--storage-gbs", &options->storage_gbs,
                   "1e9 bytes per second that their file system gives to all hosts together");
}

}  // namespace pecia::bench
