// SPDX-License-Identifier: Apache-2.0
/// Simulates a service whose answers have to come steadily: times to the first token and between
/// tokens, and what it costs to keep the latter short. It compares answers that wait for whole
/// prompts, prompts in chunks beside them, both with batch.objective: {tbt: t}, and prompts that
/// others read (parallel.phases: apart), in teams that change and in static grids. The schedulers are
/// the real ones; machine and passes are a model (lib/simulation/papers/a800_service.hpp), and nothing
/// is computed.
///
/// Requests come from a trace (JSONL as Mooncake's: timestamp in ms, input_length, output_length),
/// or of mixed lengths that come in bursts: gaps between them have a gamma distribution.

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <random>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/simulation/papers/a800_service.hpp"

namespace pecia::bench {
namespace {

using simulation::papers::limits_of, simulation::papers::num_gpus, simulation::papers::ServiceGrid,
    simulation::papers::times_of;

struct PaceOptions {
  std::filesystem::path trace;
  int64_t requests = 500;
  std::vector<double> loads = {0.5}, tbt_ms = {50, 100, 200};
  int64_t burst = 4;  ///< variance of the gaps by the square of their mean; 1: Poisson
};

struct Way {
  const char* name;
  ServiceGrid grid;
  bool paced = false;
};

std::vector<Way> ways() {
  constexpr auto chunked = job::Policy::chunked;
  const ServiceGrid teams{"elastic 8 × TP 2", 1, 8, 2, true}, fixed{"DP 2 × TP 8", 2, 1, 8};
  std::vector<Way> all;
  for (const ServiceGrid& grid : {teams, fixed}) {
    ServiceGrid in_chunks = grid;
    in_chunks.policy = chunked;
    all.insert(all.end(), {{"prompts first", grid},
                           {"chunked", in_chunks},
                           {"prompts first, tbt", grid, true},
                           {"chunked, tbt", in_chunks, true}});
  }
  for (const int answering : {1, 2, 4}) {
    ServiceGrid apart = teams;
    apart.answering = answering;
    all.push_back({answering == 1   ? "apart, 1 answers"
                   : answering == 2 ? "apart, 2 answer"
                                    : "apart, 4 answer",
                   apart});
  }
  ServiceGrid servers{"2 × TP 8", 1, 2, 8, true};  // as DistServe
  servers.answering = 1;
  all.push_back({"apart, 1 answers", servers});
  return all;
}

/// With arrivals of the trace.
std::vector<schedule::SimulatedRequest> requests_of_trace(const PaceOptions& options) {
  std::ifstream file(options.trace);
  if (!file) fail<InputError>("{}: cannot be read", options.trace.string());
  std::vector<schedule::SimulatedRequest> requests;
  for (std::string line; std::ssize(requests) < options.requests && std::getline(file, line);) try {
      const auto json = parse_json<nlohmann::json>(line);
      requests.push_back({.turns = {{json.at("input_length").get<int64_t>(),
                                     json.at("output_length").get<int64_t>()}},
                          .arrival_s = 1e-3 * json.at("timestamp").get<double>()});
    } catch (const nlohmann::json::exception& error) {
      fail<InputError>("{}: line {}: {}", options.trace.string(), requests.size() + 1,
                       error.what());
    }
  return requests;
}

/// Half of them are as long as ShareGPT's, a quarter as L-Eval's, a quarter as LV-Eval's (goodput.cpp),
/// with gaps of mean 1.
std::vector<schedule::SimulatedRequest> mixed_requests(const PaceOptions& options) {
  constexpr uint64_t seed = 20261129;
  constexpr std::array<std::pair<double, double>, 4> kinds{
      {{4, 2300}, {2700, 210000}, {4, 2300}, {15000, 497000}}};
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  std::gamma_distribution<double> gap_s(1 / static_cast<double>(options.burst),
                                        static_cast<double>(options.burst));
  std::vector<schedule::SimulatedRequest> requests(options.requests);
  double arrival_s = 0;
  for (schedule::SimulatedRequest& request : requests) {
    const auto [least, most] = kinds[random() % kinds.size()];
    request.turns = {{static_cast<int64_t>(least * std::pow(most / least, uniform(random))),
                      static_cast<int64_t>(20 + random() % 300)}};
    request.arrival_s = arrival_s += gap_s(random);
  }
  return requests;
}

schedule::Simulation play(const Way& way, double tbt_s, job::Objective objective,
                          const std::vector<schedule::SimulatedRequest>& requests) {
  schedule::SchedulerLimits limits = limits_of(way.grid, objective);
  if (way.paced) limits.tbt_s = tbt_s;
  return simulate(limits, times_of(way.grid), requests, way.grid.replicas);
}

/// A quantile of the times to the first token of prompts with at least `least` and fewer than `below`
/// tokens; NaN where there are none.
double ttft_s(const schedule::Simulation& found,
              const std::vector<schedule::SimulatedRequest>& requests, int64_t least, int64_t below,
              double share) {
  std::vector<double> seconds;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t tokens = requests[i].turns.front().prompt_tokens;
    if (tokens >= least && tokens < below && !std::isnan(found.ttft_s[i]))
      seconds.push_back(found.ttft_s[i]);
  }
  if (seconds.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(seconds);
  const double place = std::ceil(share * static_cast<double>(seconds.size()));
  return seconds[static_cast<size_t>(std::max(1.0, place)) - 1];
}

constexpr std::array<std::pair<int64_t, int64_t>, 3> classes{
    {{0, 4096}, {4096, 32768}, {32768, int64_t{1} << 40}}};

void run_pace(const Session& session, const PaceOptions& options) {
  session.require_one_rank("it plays all GPUs itself");
  const auto requests =
      options.trace.empty() ? mixed_requests(options) : requests_of_trace(options);
  Results results(session, fmt::format("simulated tokens of {} A800s", num_gpus),
                  {{"requests", requests.size()},
                   {"trace", options.trace.filename().string()},
                   {"burst", options.burst}});
  results.columns(
      "load|             grid|                way|tbt ms|TTFT s p50 p99, below 4K|  4K to 32K|  "
      "longer|TBT ms p50|   p99|within|as a batch, s|within");
  std::vector<schedule::SimulatedRequest> at_once = requests;
  double tokens = 0;
  for (schedule::SimulatedRequest& request : at_once) {
    request.arrival_s.reset();
    tokens += static_cast<double>(request.turns.front().answer_tokens);
  }
  std::ranges::stable_sort(at_once, std::ranges::greater(),
                           [](const auto& request) { return request.turns.front().prompt_tokens; });
  const double batch_s = play(ways().front(), 0, job::Objective::throughput, at_once).seconds;
  const auto within = [](const schedule::Simulation& found) {
    return 100 * static_cast<double>(found.gaps_kept) /
           static_cast<double>(std::max<int64_t>(1, found.gaps.count()));
  };
  for (const double load : options.loads) {
    std::vector<schedule::SimulatedRequest> coming = requests;
    const double stretch = batch_s / load / *requests.back().arrival_s;
    for (schedule::SimulatedRequest& request : coming) *request.arrival_s *= stretch;
    for (const Way& way : ways())
      for (const double tbt_ms : way.paced ? options.tbt_ms : std::vector<double>{0}) {
        const auto found = play(way, 1e-3 * tbt_ms, job::Objective::ttft, coming);
        const auto batch = play(way, 1e-3 * tbt_ms, job::Objective::throughput, at_once);
        std::array<std::string, classes.size()> ttfts;
        auto values = nlohmann::ordered_json::array();
        for (size_t i = 0; i < classes.size(); ++i) {
          const auto [least, below] = classes[i];
          const double half = ttft_s(found, coming, least, below, 0.5);
          const double most = ttft_s(found, coming, least, below, 0.99);
          ttfts[i] = fmt::format("{:.2f} {:.2f}", half, most);
          values.push_back({half, most});
        }
        const auto share = [&](const schedule::Simulation& of) {
          return way.paced ? fmt::format("{:.2f} %", within(of)) : "–";
        };
        results.row("{}|{}|{}|{}|{}|{}|{}|{:.0f}|{:.0f}|{}|{:.0f}|{}", load, way.grid.name,
                    way.name, way.paced ? fmt::format("{:.0f}", tbt_ms) : "–", ttfts[0], ttfts[1],
                    ttfts[2], 1e3 * found.gaps.quantile(0.5), 1e3 * found.gaps.quantile(0.99),
                    share(found), batch.seconds, share(batch));
        results.write({{"load", load},
                       {"grid", way.grid.name},
                       {"way", way.name},
                       {"tbt_ms", way.paced ? nlohmann::ordered_json(tbt_ms) : nullptr},
                       {"ttft_s", values},
                       {"gap_s", {found.gaps.quantile(0.5), found.gaps.quantile(0.99)}},
                       {"within", within(found)},
                       {"seconds", found.seconds},
                       {"batch_s", batch.seconds},
                       {"batch_within", within(batch)},
                       {"refused", found.refused}});
        const int64_t all = found.answered + found.refused;
        if (session.options.check && (all != std::ssize(coming) || found.answered == 0))
          fail<SystemError>("{} of {} requests were answered", found.answered, coming.size());
      }
  }
  if (session.options.check) results.line("checked: every request that fits was answered");
}

}  // namespace

void add_pace(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<PaceOptions>();
  Command command(app, chosen, "pace", "Simulates times between tokens on 16 GPUs, with no model",
                  [options](const Session& session) { run_pace(session, *options); });
  command.add({.name = "--trace",
               .into = &options->trace,
               .help = "JSONL with timestamp (ms), input_length and output_length; default: mixed "
                       "lengths that come in bursts"});
  command.positive("--requests", &options->requests, "Requests, or the first ones of the trace");
  command.positive("--loads", &options->loads,
                   "Rates at which requests come, as shares of what elastic teams do as a batch");
  command.positive("--tbt-ms", &options->tbt_ms, "Longest times between tokens, as objectives");
  command.positive("--burst", &options->burst, "1: requests come independently of each other");
}

}  // namespace pecia::bench
