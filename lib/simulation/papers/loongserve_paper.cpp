// SPDX-License-Identifier: Apache-2.0
/// Llama-2-7B (LWM-1M-Text) on two servers of 8 × A800, requests with random gaps: goodput by kinds of
/// requests, of elastic teams and of static grids, and elastic teams without a part of them. All are
/// this program's: what was published compares engines.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lib/simulation/papers/goodput.hpp"
#include "lib/simulation/papers/papers.hpp"

namespace pecia::simulation::papers {
namespace {

constexpr auto loong_steps = job::TeamScheduler::loongserve;
constexpr auto service_policy = job::Policy::prefill_first;
/// Batches in one pass, which no prompt joins.
constexpr schedule::ElasticParts one_pass{.interrupts = false};

struct Way {
  enum Kind { whole, no_scale_up, no_scale_down, tp, chunked, apart, ring };
};
const std::array<ServiceGrid, 7> ways{
    {{"elastic 8 × TP 2", 1, 8, 2, true, service_policy, loong_steps, 0, one_pass},
     {"elastic 8 × TP 2, no scale-up",
      1,
      8,
      2,
      true,
      service_policy,
      loong_steps,
      0,
      {.grows = false, .interrupts = false}},
     {"elastic 8 × TP 2, no scale-down",
      1,
      8,
      2,
      true,
      service_policy,
      loong_steps,
      0,
      {.scales_down = false, .interrupts = false}},
     {"DP 2 × TP 8", 2, 1, 8},
     {"DP 2 × TP 8, chunked", 2, 1, 8, false, job::Policy::chunked},
     {"2 × TP 8, one answers", 1, 2, 8, true, service_policy, job::TeamScheduler::greedy, 1},
     {"CP 8 × TP 2", 1, 8, 2}}};

/// What the paper says of the highest ratio of goodput.
struct GoodputRatio {
  Way::Kind other;
  const char* what;
  double published;
  const char* of;  ///< the kind of requests; "": whichever is highest
};
constexpr std::array goodput_ratios{
    GoodputRatio{Way::tp, "goodput by that of vLLM with TP 8, at most", 4.64, ""},
    GoodputRatio{Way::chunked, "by that of chunked prefill, at most", 3.85, ""},
    GoodputRatio{Way::apart, "by that of prompts and answers apart, at most", 5.81, ""},
    GoodputRatio{Way::ring, "by that of static SP × TP, at most", 2.33, ""},
    GoodputRatio{Way::no_scale_up, "by that without scale-up, mixed", 0, "mixed"},
    GoodputRatio{Way::no_scale_down, "by that without scale-down, mixed", 0, "mixed"}};

/// Short requests need thousands of them until waiting counts beside what each may take.
bool is_short_to_play(const Workload& workload) {
  return workload.kinds.back().most > 300'000;
}

}  // namespace

Paper elastic_parallelism() {
  constexpr int64_t requests_of_a_kind = 100;
  constexpr double share = 0.9, slack = 25;
  Paper paper{.name = "ESP",
              .title = "LoongServe: elastic sequence parallelism",
              .machine = "Llama-2-7B in bf16, two servers of 8 × A800, passes by a model"};
  std::array<std::array<double, 4>, 7> rates{};
  for (size_t kind = 0; kind < workloads.size(); ++kind) {
    const Workload& workload = workloads[kind];
    if (!is_short_to_play(workload)) continue;
    const auto requests = requests_of(workload, workload.times * requests_of_a_kind);
    std::vector<double> alone_s(requests.size(), std::numeric_limits<double>::infinity());
    for (const ServiceGrid& grid : ways) {
      const std::vector<double> found = latencies_alone(grid, requests);
      for (size_t i = 0; i < found.size(); ++i) alone_s[i] = std::fmin(alone_s[i], found[i]);
    }
    for (size_t way = 0; way < ways.size(); ++way) {
      rates[way][kind] = goodput(
          [&](double rate) { return serve(ways[way], requests, rate, alone_s, slack); }, share);
      paper.rows.push_back({.what = "goodput",
                            .setting = fmt::format("{}, {}", workload.name, ways[way].name),
                            .unit = "requests/s",
                            .ours = rates[way][kind],
                            .note = "published figure not at hand",
                            .command = "pecia-bench goodput has more requests and grids",
                            .plot = "Goodput",
                            .line = ways[way].name,
                            .x = static_cast<double>(kind)});
    }
  }
  for (const GoodputRatio& ratio : goodput_ratios) {
    double most = 0;
    for (size_t kind = 0; kind < workloads.size(); ++kind)
      if (*ratio.of == '\0' || ratio.of == std::string(workloads[kind].name))
        if (rates[ratio.other][kind] > 0)
          most = std::max(most, rates[Way::whole][kind] / rates[ratio.other][kind]);
    Row row{.what = ratio.what,
            .setting = fmt::format("{} / {}", ways[Way::whole].name, ways[ratio.other].name),
            .ours = most};
    if (ratio.published > 0) {
      row.published = ratio.published;
      row.note =
          "not asserted: published against other engines, whose order and passes differ; here both "
          "sides have this program's";
    } else {
      row.note = "published figure not at hand";
    }
    paper.rows.push_back(row);
  }
  paper.rows.push_back({.what = "by that without scale-up, ShareGPT, at most",
                        .setting = "short requests",
                        .published = 2.87,
                        .note = "minutes to play",
                        .command = "pecia-bench goodput --workloads ShareGPT"});
  for (const double published : {1.86, 3.37})
    paper.rows.push_back(
        {.what = "goodput on two nodes by another engine's",
         .setting = "which one and which requests is not at hand",
         .published = published,
         .note = "not asserted: two engines; the rows above are of two nodes, too"});
  bool elastic_serves = true;
  for (size_t kind = 0; kind < workloads.size(); ++kind)
    if (is_short_to_play(workloads[kind]))
      elastic_serves = elastic_serves && rates[Way::whole][kind] > 0;
  paper.claims.push_back({"elastic teams serve LV-Eval and mixed requests", elastic_serves});
  bool beats_ring = true;
  for (size_t kind = 0; kind < workloads.size(); ++kind)
    beats_ring = beats_ring && (!is_short_to_play(workloads[kind]) ||
                                rates[Way::whole][kind] > rates[Way::ring][kind]);
  paper.claims.push_back({"and more of each than static SP × TP", beats_ring});
  paper.plots.push_back({"Goodput", "2: LV-Eval, 3: mixed", "requests/s", false, true});
  return paper;
}

}  // namespace pecia::simulation::papers
