// SPDX-License-Identifier: Apache-2.0
/// Compares the schedulers of elastic teams with one who knows all requests beforehand: on small
/// traces with the best of all ways to read the prompts, on large ones with bounds that no schedule
/// falls below. Machine and passes are a model (lib/simulation/papers/a800_service.hpp), and nothing is computed.
///
/// A small trace has five prompts of 500 to 200 000 tokens, evenly over the logarithm of the length,
/// for four instances; they come at such a rate that four instances are busy for a half, or for nine
/// tenths, of the time. Large traces have lengths like goodput.cpp's mixed requests.

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "apps/bench/commands.hpp"
#include "apps/bench/schedule/oracle.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/simulation/papers/a800_service.hpp"

namespace pecia::bench {
namespace {

using simulation::papers::limits_of, simulation::papers::ServiceGrid, simulation::papers::times_of;

struct GapOptions {
  int64_t traces = 200, prompts = 5, requests = 300;
  std::vector<double> loads = {0.5, 0.9};
};

struct TeamPolicy {
  const char* name;
  job::TeamScheduler scheduler;
  schedule::ElasticParts parts = {};
};

const std::array<TeamPolicy, 7> team_policies{{{"greedy", job::TeamScheduler::greedy},
                                               {"loongserve", job::TeamScheduler::loongserve},
                                               {"loongserve, batches in one pass as published",
                                                job::TeamScheduler::loongserve,
                                                {.interrupts = false}},
                                               {"as published, no scale-up",
                                                job::TeamScheduler::loongserve,
                                                {.grows = false, .interrupts = false}},
                                               {"as published, no scale-down",
                                                job::TeamScheduler::loongserve,
                                                {.scales_down = false, .interrupts = false}},
                                               {"as published, decode does not shrink",
                                                job::TeamScheduler::loongserve,
                                                {.shrinks = false, .interrupts = false}},
                                               {"as published, first come first served",
                                                job::TeamScheduler::loongserve,
                                                {.interrupts = false, .by_due = false}}}};

/// Requests of this kind of lengths with gaps of mean 1.
std::vector<schedule::SimulatedRequest> requests_of(int64_t count, uint64_t seed,
                                                    std::vector<std::pair<double, double>> kinds,
                                                    bool with_answers) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  std::exponential_distribution<double> gap_s(1);
  std::vector<schedule::SimulatedRequest> requests(count);
  double arrival_s = 0;
  for (schedule::SimulatedRequest& request : requests) {
    const auto [least, most] = kinds[random() % kinds.size()];
    const auto tokens = static_cast<int64_t>(least * std::pow(most / least, uniform(random)));
    request.turns = {
        {tokens, with_answers ? static_cast<int64_t>(20 + random() % 300) : int64_t{1}}};
    request.arrival_s = arrival_s += gap_s(random);
  }
  return requests;
}

/// Stretches the gaps so that the prompts' work keeps the instances busy for this share of the time.
void set_load(std::vector<schedule::SimulatedRequest>& requests, const Readers& readers,
              double load) {
  double work_s = 0;
  for (const schedule::SimulatedRequest& request : requests)
    work_s += reading_s(readers.times, {{.tokens = request.turns.front().prompt_tokens}}, 1,
                        readers.rows_per_instance);
  const double mean_s = work_s / static_cast<double>(requests.size()) / (load * readers.instances);
  for (schedule::SimulatedRequest& request : requests) *request.arrival_s *= mean_s;
}

schedule::SchedulerLimits limits_of_policy(const ServiceGrid& grid, const TeamPolicy& policy,
                                           job::Objective objective) {
  schedule::SchedulerLimits limits = limits_of(grid, objective);
  limits.scheduler = policy.scheduler;
  limits.parts = policy.parts;
  return limits;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values)
    if (!std::isnan(value)) sum += value, ++count;
  return sum / count;
}

void run_small(const Session& session, const GapOptions& options, const ServiceGrid& grid,
               const Readers& readers) {
  Results results(session, "elastic schedulers beside the best of all ways, small traces",
                  {{"traces", options.traces}, {"prompts", options.prompts}});
  results.columns(
      "load|                                    scheduler|mean of TTFT / best|90 %|worst");
  for (const double load : options.loads) {
    std::array<std::vector<double>, team_policies.size()> ratios;
    for (int64_t trace = 0; trace < options.traces; ++trace) {
      auto requests = requests_of(options.prompts, 20261129 + static_cast<uint64_t>(trace),
                                  {{500, 200000}}, false);
      set_load(requests, readers, load);
      const double best_s = best_mean_ttft_s(readers, requests);
      for (size_t i = 0; i < team_policies.size(); ++i)
        ratios[i].push_back(
            mean_of(simulate(limits_of_policy(grid, team_policies[i], job::Objective::ttft),
                             readers.times, requests)
                        .ttft_s) /
            best_s);
    }
    for (size_t i = 0; i < team_policies.size(); ++i) {
      std::ranges::sort(ratios[i]);
      const double mean = mean_of(ratios[i]), most = ratios[i][ratios[i].size() * 9 / 10];
      results.row("{}|{}|{:.3f}|{:.3f}|{:.2f}", load, team_policies[i].name, mean, most,
                  ratios[i].back());
      results.write({{"load", load},
                     {"scheduler", team_policies[i].name},
                     {"ratio", {{"mean", mean}, {"p90", most}, {"max", ratios[i].back()}}}});
    }
  }
}

void run_large(const Session& session, const GapOptions& options, const ServiceGrid& grid,
               const Readers& readers) {
  Results results(session, "elastic schedulers beside bounds, mixed requests",
                  {{"requests", options.requests}});
  results.columns(
      "load|                                    scheduler|TTFT s|by the bound|latency s|as a batch "
      "s|by the bound");
  for (const double load : options.loads) {
    auto requests =
        requests_of(options.requests, 20261129, {{4, 2300}, {2700, 210000}, {15000, 497000}}, true);
    set_load(requests, readers, load);
    auto batch = requests;
    for (schedule::SimulatedRequest& request : batch) request.arrival_s.reset();
    std::ranges::stable_sort(batch, std::ranges::greater(), [](const auto& request) {
      return request.turns.front().prompt_tokens;
    });
    const double ttft_bound_s = least_mean_ttft_s(readers, requests);
    const double batch_bound_s = least_makespan_s(readers, batch);
    for (const TeamPolicy& policy : team_policies) {
      const schedule::Simulation served =
          simulate(limits_of_policy(grid, policy, job::Objective::ttft), readers.times, requests);
      const schedule::Simulation ended = simulate(
          limits_of_policy(grid, policy, job::Objective::throughput), readers.times, batch);
      const double ttft_s = mean_of(served.ttft_s), latency_s = mean_of(served.latency_s);
      results.row("{}|{}|{:.2f}|{:.2f}|{:.2f}|{:.1f}|{:.3f}", load, policy.name, ttft_s,
                  ttft_s / ttft_bound_s, latency_s, ended.seconds, ended.seconds / batch_bound_s);
      results.write({{"load", load},
                     {"scheduler", policy.name},
                     {"ttft_s", ttft_s},
                     {"ttft_bound_s", ttft_bound_s},
                     {"latency_s", latency_s},
                     {"batch_s", ended.seconds},
                     {"batch_bound_s", batch_bound_s}});
      if (session.options.check && (ttft_s < ttft_bound_s || ended.seconds < batch_bound_s))
        fail<SystemError>("{} is better than a bound", policy.name);
    }
  }
  if (session.options.check) results.line("checked: no schedule is better than its bound");
}

void run_gap(const Session& session, const GapOptions& options) {
  session.require_one_rank("it plays all instances itself");
  const ServiceGrid grid{"elastic 4 × TP 2", 1, 4, 2, true};
  const schedule::TeamTimes times = times_of(grid);
  const Readers readers{times, grid.instances,
                        limits_of(grid, job::Objective::ttft).max_batch_tokens};
  run_small(session, options, grid, readers);
  run_large(session, options, grid, readers);
}

}  // namespace

void add_gap(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<GapOptions>();
  Command command(app, chosen, "gap",
                  "Compares elastic schedulers with the best of all ways and with bounds",
                  [options](const Session& session) { run_gap(session, *options); });
  command.positive("--traces", &options->traces, "Small traces");
  command.positive("--prompts", &options->prompts, "Prompts of a small trace, at most 6");
  command.positive("--requests", &options->requests, "Requests of the large trace");
}

}  // namespace pecia::bench
