// SPDX-License-Identifier: Apache-2.0
/// Simulates a service on 16 GPUs: how many requests per second can come so that 90 % of them are
/// answered within 25 times their latency alone? It asks this of elastic teams and of static grids.
/// The schedulers are the real ones; the passes last as long as a model says, and nothing is
/// computed.
///
/// The machine and the requests are those of LoongServe's evaluation: two servers with eight A800-80GB
/// each, LWM-1M-Text (Llama-2-7B: 32 layers, 32 heads of 128), prompts as long as those of ShareGPT
/// (4 to 2300 tokens), L-Eval (2700 to 210 000), LV-Eval (15 000 to 497 000), or a third of each.
/// Lengths are drawn evenly over their logarithm, answers have 20 to 320 tokens, and requests come
/// independently of each other. So it shows ratios between grids of this program, and is no
/// measurement of any machine.

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "apps/bench/commands.hpp"
#include "apps/bench/schedule/a800_service.hpp"
#include "apps/bench/support/results.hpp"

namespace pecia::bench {
namespace {

struct GoodputOptions {
  int64_t requests = 300;
  std::vector<std::string> workloads = {"ShareGPT", "L-Eval", "LV-Eval", "mixed"};
  double share = 0.9, slack = 25;
};

struct Lengths {
  double least, most;
};

struct Workload {
  const char* name;
  std::vector<Lengths> kinds;
  int times = 1;  ///< as many requests, so that a trace lasts long beside the slack of its requests
};

const std::array<Workload, 4> workloads{{{"ShareGPT", {{4, 2300}}, 10},
                                         {"L-Eval", {{2700, 210000}}},
                                         {"LV-Eval", {{15000, 497000}}},
                                         {"mixed", {{4, 2300}, {2700, 210000}, {15000, 497000}}}}};

constexpr auto loongserve = job::TeamScheduler::loongserve;
const std::array<ServiceGrid, 12> grids{
    {{"DP 2 × elastic 4 × TP 2", 2, 4, 2, true},
     {"elastic 8 × TP 2", 1, 8, 2, true},
     {"DP 2 × elastic 4 × TP 2, LoongServe", 2, 4, 2, true, job::Policy::prefill_first, loongserve},
     {"elastic 8 × TP 2, LoongServe", 1, 8, 2, true, job::Policy::prefill_first, loongserve},
     {"elastic 8 × TP 2, 2 answer", 1, 8, 2, true, job::Policy::prefill_first,
      job::TeamScheduler::greedy, 2},
     {"elastic 8 × TP 2, 4 answer", 1, 8, 2, true, job::Policy::prefill_first,
      job::TeamScheduler::greedy, 4},
     {"2 × TP 8, 1 answers", 1, 2, 8, true, job::Policy::prefill_first,  // as DistServe
      job::TeamScheduler::greedy, 1},
     {"DP 2 × TP 8", 2, 1, 8},
     {"DP 2 × TP 8, chunked", 2, 1, 8, false, job::Policy::chunked},
     {"DP 8 × TP 2", 8, 1, 2},
     {"DP 2 × CP 4 × TP 2", 2, 4, 2},
     {"CP 8 × TP 2", 1, 8, 2}}};

/// Requests with gaps of mean 1 between them.
std::vector<schedule::SimulatedRequest> requests_of(const Workload& workload, int64_t count) {
  constexpr uint64_t seed = 20261123;
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  std::vector<schedule::SimulatedRequest> requests(count);
  double arrival_s = 0;
  for (schedule::SimulatedRequest& request : requests) {
    const auto [least, most] = workload.kinds[random() % workload.kinds.size()];
    request.turns = {{static_cast<int64_t>(least * std::pow(most / least, uniform())),
                      static_cast<int64_t>(20 + random() % 300)}};
    request.arrival_s = arrival_s -= std::log(uniform());
  }
  return requests;
}

/// Each request's latency on a grid where nothing else runs.
std::vector<double> latencies_alone(const ServiceGrid& grid,
                                    std::vector<schedule::SimulatedRequest> requests) {
  std::vector<double> latencies;
  const schedule::TeamTimes times = times_of(grid);
  for (schedule::SimulatedRequest& request : requests) {
    request.arrival_s = 0;
    latencies.push_back(simulate(limits_of(grid), times, {request}).latency_s.front());
  }
  return latencies;
}

struct Served {
  double share = 0;    ///< of the requests, within the slack
  double refused = 0;  ///< share of the requests that the grid has no memory for
  double mean_ttft_s = 0;
};

Served serve(const ServiceGrid& grid, std::vector<schedule::SimulatedRequest> requests, double rate,
             const std::vector<double>& alone_s, double slack) {
  for (schedule::SimulatedRequest& request : requests) *request.arrival_s /= rate;
  const schedule::Simulation found =
      simulate(limits_of(grid), times_of(grid), requests, grid.replicas);
  Served served;
  double answered = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (std::isnan(found.latency_s[i])) continue;
    served.share += found.latency_s[i] <= slack * alone_s[i];
    served.mean_ttft_s += found.ttft_s[i];
    ++answered;
  }
  const auto count = static_cast<double>(requests.size());
  served.share /= count;
  served.refused = static_cast<double>(found.refused) / count;
  served.mean_ttft_s /= std::max(answered, 1.0);
  return served;
}

/// Seconds until all requests are answered that are there from the start, the longest first.
double makespan(const ServiceGrid& grid, std::vector<schedule::SimulatedRequest> requests) {
  for (schedule::SimulatedRequest& request : requests) request.arrival_s.reset();
  std::ranges::stable_sort(requests, std::ranges::greater(),
                           [](const auto& request) { return request.turns.front().prompt_tokens; });
  return simulate(limits_of(grid, job::Objective::throughput), times_of(grid), requests,
                  grid.replicas)
      .seconds;
}

/// The highest rate at which enough requests are served, within 2 %; 0: none is high enough.
double goodput(const std::function<Served(double rate)>& at, double share) {
  constexpr double least = 0.01, most = 1000, steps_apart = 1.02;
  if (at(least).share < share) return 0;
  double good = least, bad = 2 * least;
  while (bad < most && at(bad).share >= share) good = bad, bad *= 2;
  while (bad / good > steps_apart) {
    const double middle = std::sqrt(good * bad);
    (at(middle).share >= share ? good : bad) = middle;
  }
  return good;
}

void run_goodput(const Session& session, const GoodputOptions& options) {
  session.require_one_rank("it plays all GPUs itself");
  Results results(session, fmt::format("simulated goodput of {} A800s", num_gpus),
                  {{"requests", options.requests}, {"slack", options.slack}});
  results.columns(
      "requests|                      grid|requests/s|first / this|TTFT s at 3/4 of the "
      "first|within the slack there|refused|as a batch, s|first / this");
  for (const Workload& workload : workloads) {
    if (std::ranges::count(options.workloads, workload.name) == 0) continue;
    const auto requests = requests_of(workload, workload.times * options.requests);
    std::vector<double> alone_s(requests.size(), std::numeric_limits<double>::infinity());
    for (const ServiceGrid& grid : grids) {
      const std::vector<double> found = latencies_alone(grid, requests);
      for (size_t i = 0; i < found.size(); ++i) alone_s[i] = std::fmin(alone_s[i], found[i]);
    }
    double elastic = 0, elastic_batch_s = 0;
    for (const ServiceGrid& grid : grids) {
      const auto at = [&](double rate) {
        return serve(grid, requests, rate, alone_s, options.slack);
      };
      const double rate = goodput(at, options.share);
      const double batch_s = makespan(grid, requests);
      if (&grid == &grids.front()) elastic = rate, elastic_batch_s = batch_s;
      const Served there = at(0.75 * elastic);
      results.row("{}|{}|{:.3f}|{}|{:.2f}|{:.3f}|{:.3f}|{:.1f}|{:.2f}", workload.name, grid.name,
                  rate, rate > 0 ? fmt::format("{:.2f}", elastic / rate) : "–", there.mean_ttft_s,
                  there.share, there.refused, batch_s, elastic_batch_s / batch_s);
      results.write({{"workload", workload.name},
                     {"grid", grid.name},
                     {"rate", rate},
                     {"mean_ttft_s", there.mean_ttft_s},
                     {"share", there.share},
                     {"refused", there.refused},
                     {"batch_s", batch_s}});
      if (session.options.check && grid.elastic && rate <= 0)
        fail<SystemError>("elastic teams serve no rate of {}", workload.name);
    }
  }
  if (session.options.check) results.line("checked: elastic teams serve every kind of requests");
}

}  // namespace

void add_goodput(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<GoodputOptions>();
  Command command(app, chosen, "goodput", "Simulates a service on 16 GPUs, with no model",
                  [options](const Session& session) { run_goodput(session, *options); });
  command.positive("--requests", &options->requests,
                   "Requests of each kind; ten times as many of ShareGPT's");
  command.add({.name = "--workloads",
               .into = &options->workloads,
               .help = "Kinds of requests",
               .show_default = true,
               .among = {"ShareGPT", "L-Eval", "LV-Eval", "mixed"}});
}

}  // namespace pecia::bench
