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

#include "lib/simulation/papers/goodput.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/results.hpp"

namespace pecia::bench {
namespace {

using simulation::papers::goodput, simulation::papers::latencies_alone,
    simulation::papers::makespan, simulation::papers::num_gpus, simulation::papers::requests_of,
    simulation::papers::serve, simulation::papers::Served, simulation::papers::ServiceGrid,
    simulation::papers::Workload, simulation::papers::workloads;

struct GoodputOptions {
  int64_t requests = 300;
  std::vector<std::string> workloads = {"ShareGPT", "L-Eval", "LV-Eval", "mixed"};
  double share = 0.9, slack = 25;
};

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
