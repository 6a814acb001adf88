// SPDX-License-Identifier: Apache-2.0
/// Simulates a batch on one GPU whose KV cache holds a part of it: with memory for each answer's
/// longest length reserved, with memory on demand, and with the lengths known from the start. The
/// scheduler is the real one; the passes last as long as a model says, and nothing is computed.
///
/// The same with several GPUs whose teams change, for both of their schedulers.
///
/// The machine is an H100 with Llama 3.1 8B in bf16, or some of them with NVLink. Answers have lognormal
/// lengths. So it shows ratios between policies of this program, and is no measurement of any machine.

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/engine/schedule/simulate.hpp"

namespace pecia::bench {
namespace {

struct DemandOptions {
  int64_t requests = 512, prompt_tokens = 2000, median = 300, most = 4096, sequences = 256;
  int64_t parking_gbs = 25;  ///< of keys that are parked or come back
  int64_t instances = 4;     ///< of teams that change
  bool forgets = false;      ///< nothing is parked
  double sigma = 0.7;        ///< of the logarithm of lengths
  std::vector<double> shares = {0.125, 0.25, 0.5, 1};
};

/// Llama 3.1 8B in bf16 on an H100.
struct Gpu {
  static constexpr double layers = 32, hidden = 4096, weight_bytes = 16e9, row_flops = 16e9;
  static constexpr double token_bytes = 131072, pair_flops = 4 * layers * hidden;
  static constexpr double flops = 0.6 * 989e12, memory = 0.8 * 3.35e12;
  static constexpr double message_s = 10e-6, link = 0.8 * 450e9;
  /// Queries in bf16, and partial outputs with the log-sums of 32 heads.
  static constexpr double query_bytes = layers * (2 * 2 * hidden + 4 * 32);
};

schedule::TeamTimes times_of_gpus(int instances) {
  const double pass_s = Gpu::weight_bytes / Gpu::memory, row_s = Gpu::row_flops / Gpu::flops;
  return {{schedule::RateFit({pass_s, row_s, Gpu::pair_flops / Gpu::flops}),
           schedule::RateFit({pass_s, row_s, Gpu::token_bytes / Gpu::memory})},
          {.message_s = Gpu::message_s,
           .bytes_per_second = Gpu::link,
           .kv_bytes_per_token = Gpu::token_bytes,
           .query_bytes_per_row = Gpu::query_bytes,
           .layers = static_cast<int>(Gpu::layers),
           .hides_keys = true},
          instances};
}

std::vector<schedule::SimulatedRequest> requests_of(const DemandOptions& options, bool known) {
  constexpr uint64_t seed = 20261129;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, options.sigma);
  std::vector<schedule::SimulatedRequest> requests(options.requests);
  for (schedule::SimulatedRequest& request : requests) {
    const auto drawn = std::llround(static_cast<double>(options.median) * std::exp(normal(random)));
    const int64_t answer = std::clamp<int64_t>(drawn, 1, options.most);
    const auto prompt =
        options.prompt_tokens / 2 + static_cast<int64_t>(random() % options.prompt_tokens);
    request.turns = {{.prompt_tokens = prompt,
                      .answer_tokens = answer,
                      .max_new_tokens = known ? answer : options.most}};
  }
  return requests;
}

struct Policy {
  const char* name;
  bool on_demand, known;
};
constexpr std::array<Policy, 4> policies{{{"reserve", false, false},
                                          {"demand", true, false},
                                          {"lengths known", false, true},
                                          {"demand, lengths known", true, true}}};

/// Who makes the passes: one GPU, or teams of several.
struct Makers {
  const char* name;
  bool elastic = false;
  job::TeamScheduler scheduler = job::TeamScheduler::greedy;
};
constexpr std::array<Makers, 3> all_makers{
    {{"one GPU"},
     {"teams, greedy", true, job::TeamScheduler::greedy},
     {"teams, loongserve", true, job::TeamScheduler::loongserve}}};

schedule::SchedulerLimits limits_of(const DemandOptions& options, const Makers& makers,
                                    const Policy& policy) {
  schedule::SchedulerLimits limits;
  limits.on_demand = policy.on_demand;
  limits.parking_s = Gpu::token_bytes / (1e9 * static_cast<double>(options.parking_gbs));
  if (options.forgets) limits.parking_tokens = 0;
  limits.max_sequences = options.sequences;
  limits.max_batch_tokens = 8192;
  limits.max_positions = 1 << 20;
  limits.vocab = 128256;
  if (!makers.elastic) return limits;
  limits.elastic = true;
  limits.scheduler = makers.scheduler;
  limits.ring_size = static_cast<int>(options.instances);
  limits.max_sequences *= options.instances;
  limits.team_times = times_of_gpus(limits.ring_size);
  limits.pass_times = limits.team_times->alone();
  return limits;
}

void run_demand(const Session& session, const DemandOptions& options) {
  session.require_one_rank("it plays the GPUs itself");
  Results results(session, "simulated batch on H100 with Llama 3.1 8B",
                  {{"requests", options.requests},
                   {"median", options.median},
                   {"instances", options.instances}});
  results.columns(
      "memory for|             GPUs|               policy|tokens/s|beside reserve|at once|parked|"
      "tokens parked|moved|scale-ups|forgotten|tokens reread|blocks");
  const auto known = requests_of(options, true);
  double tokens = 0, all = 0;
  int64_t longest = 0;
  for (const schedule::SimulatedRequest& request : known) {
    const auto& [prompt, answer] =
        std::pair(request.turns.front().prompt_tokens, request.turns.front().answer_tokens);
    tokens += static_cast<double>(answer);
    all += static_cast<double>(prompt + answer);
    longest = std::max(longest, prompt + options.most);
  }
  for (const Makers& makers : all_makers)
    for (const double share : options.shares) {
      double reserving = 0;
      for (const Policy& policy : policies) {
        schedule::SchedulerLimits limits = limits_of(options, makers, policy);
        limits.kv_tokens =
            std::max(longest, static_cast<int64_t>(share * all)) / limits.ring_size + 1;
        const schedule::Simulation found =
            simulate(limits, times_of_gpus(limits.ring_size),
                     policy.known ? known : requests_of(options, false));
        const double rate = tokens / found.seconds;
        const schedule::DemandCounts& demand = found.demand;
        if (!policy.on_demand && !policy.known) reserving = rate;
        results.row("{}|{}|{}|{:.0f}|{:.2f}|{}|{}|{}|{}|{}|{}|{}|{}", share, makers.name,
                    policy.name, rate, rate / reserving, demand.most_at_once, demand.parked,
                    demand.parked_tokens, demand.moved, demand.scale_ups, demand.forgotten,
                    demand.reread_tokens, demand.blocks);
        results.write({{"memory_share", share},
                       {"gpus", makers.name},
                       {"policy", policy.name},
                       {"tokens_per_s", rate},
                       {"most_at_once", demand.most_at_once},
                       {"parked", demand.parked},
                       {"parked_tokens", demand.parked_tokens},
                       {"moved", demand.moved},
                       {"scale_ups", demand.scale_ups},
                       {"forgotten", demand.forgotten},
                       {"reread_tokens", demand.reread_tokens},
                       {"blocks", demand.blocks}});
      }
    }
}

}  // namespace

void add_demand(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<DemandOptions>();
  Command command(app, chosen, "demand",
                  "Simulates memory on demand beside reserved memory, with no model",
                  [options](const Session& session) { run_demand(session, *options); });
  command.positive("--requests", &options->requests, "Requests");
  command.positive("--prompt-tokens", &options->prompt_tokens, "Tokens of a prompt, on average");
  command.positive("--median", &options->median, "Median of the lengths of answers");
  command.positive("--max-new-tokens", &options->most, "What every answer may have");
  command.positive("--parking-gbs", &options->parking_gbs, "GB/s of keys that are parked");
  command.positive("--instances", &options->instances, "GPUs of teams that change");
  command.flag("--forget", &options->forgets, "Sequences that yield read their tokens again");
  command.positive("--max-sequences", &options->sequences, "Sequences at a time, at most");
}

}  // namespace pecia::bench
