// SPDX-License-Identifier: Apache-2.0
/// Llama 3.1 70B in fp8 on 8 × H200 behind NVSwitch: TTFT, TPOT and throughput of DP, TP, SP and of
/// shifting between the last two, by length, by rate of arrivals, and of bursts. Of the paper's figures
/// two ratios are at hand, those of its abstract.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>

#include "lib/simulation/papers/machine.hpp"
#include "lib/simulation/papers/papers.hpp"

namespace pecia::simulation::papers {
namespace {

constexpr int shift_gpus = 8;
constexpr int64_t shift_answer = 250;

struct ShiftWay {
  const char* name;
  Grid grid;
  int replicas = 1;
};
const std::array<ShiftWay, 4> shift_ways{
    {{"DP", {}, shift_gpus},
     {"TP", {.tp = shift_gpus}},
     {"SP", {.sp = shift_gpus, .decode = parallel::DecodeMode::sp}},
     {"shift", {.sp = shift_gpus, .decode = parallel::DecodeMode::shift}}}};

job::Job shift_job() {
  job::Job job;
  job.model.dtype = job::Precision::fp8;
  job.batch.max_sequences = 256;
  return job;
}

/// Gaps of mean 1 / rate: of a Poisson process, or in bursts of 20 that come as seldom.
std::vector<schedule::SimulatedRequest> arriving(int64_t count, int64_t prompt, double rate,
                                                 bool in_bursts) {
  constexpr uint64_t seed = 20261130;
  constexpr int64_t burst = 20;
  std::mt19937_64 random(seed);
  std::vector<schedule::SimulatedRequest> requests = alike(count, prompt, shift_answer);
  double at_s = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    const double times = in_bursts ? (i % burst == 0 ? burst : 0) : 1;
    requests[i].arrival_s = at_s -= times * std::log(uniform) / rate;
  }
  return requests;
}

Row shift_row(const char* what, const ShiftWay& way, int64_t prompt, const char* unit,
              double ours) {
  return {.what = what,
          .setting = fmt::format("{}, {} + {} tokens", way.name, prompt, shift_answer),
          .unit = unit,
          .ours = ours,
          .note = "published figure not at hand",
          .plot = what,
          .line = way.name,
          .x = static_cast<double>(prompt)};
}

}  // namespace

Paper shift_parallelism() {
  Paper paper{.name = "Shift",
              .title = "Shift Parallelism",
              .machine = "Llama 3.1 70B in fp8, 8 × H200 (h200-nvswitch)"};
  cluster_files::Cluster cluster = cluster_files::cluster_of("h200-nvswitch");
  cluster.rank.in_order = true;  // sums by NCCL on the stream of the products
  Machine machine("llama-3.1-70b", cluster, shift_job());
  double response = 0, throughput = 0;
  bool ttft_near_best = true, tpot_near_tp = true, throughput_near_dp = true;
  for (const int64_t prompt : {2000, 8000, 32000, 128000}) {
    std::map<std::string, RequestLatency> alone;
    std::map<std::string, double> tokens_per_s;
    const int64_t count = std::clamp<int64_t>(2'000'000 / prompt, 16, 256);
    for (const ShiftWay& way : shift_ways) {
      const RequestLatency latency =
          machine.latency(way.grid, {.prompt_tokens = prompt, .new_tokens = shift_answer});
      const BatchEnd end =
          machine.batch(way.grid, way.replicas, alike(count, prompt, shift_answer));
      const double rate = static_cast<double>(count * (prompt + shift_answer)) / end.end_s;
      alone[way.name] = latency, tokens_per_s[way.name] = rate;
      paper.rows.push_back(shift_row("TTFT", way, prompt, "ms", 1e3 * latency.ttft_s));
      paper.rows.push_back(shift_row("TPOT", way, prompt, "ms", 1e3 * latency.tbt_s));
      paper.rows.push_back(shift_row("throughput", way, prompt, "tokens/s", rate));
    }
    const auto whole_s = [&](const char* way) {
      return alone[way].ttft_s + shift_answer * alone[way].tbt_s;
    };
    response = std::max(response, whole_s("TP") / whole_s("shift"));
    throughput = std::max(throughput, tokens_per_s["shift"] / tokens_per_s["TP"]);
    const double best_s = std::min({alone["DP"].ttft_s, alone["TP"].ttft_s, alone["SP"].ttft_s});
    ttft_near_best = ttft_near_best && alone["shift"].ttft_s <= 1.05 * best_s;
    tpot_near_tp = tpot_near_tp && alone["shift"].tbt_s <= 1.15 * alone["TP"].tbt_s;
    throughput_near_dp = throughput_near_dp && tokens_per_s["shift"] >= 0.75 * tokens_per_s["DP"];
  }
  for (const auto& [what, published, ours] :
       {std::tuple{"response of shift by TP's, at most", 1.51, response},
        {"throughput of shift by TP's, at most", 1.5, throughput}})
    paper.rows.push_back({.what = what,
                          .setting = "2K to 128K tokens",
                          .published = published,
                          .ours = ours,
                          .allowed = 0.4,
                          .note = "the paper's abstract: on its traces, with its engine"});
  constexpr int64_t arriving_prompt = 4000, arriving_requests = 60;
  for (const bool in_bursts : {false, true})
    for (const double rate : {1.0, 4.0, 16.0})
      for (const ShiftWay& way : shift_ways) {
        const BatchEnd end = machine.batch(
            way.grid, way.replicas, arriving(arriving_requests, arriving_prompt, rate, in_bursts));
        const char* plot = in_bursts ? "TTFT of bursts" : "TTFT of arrivals";
        paper.rows.push_back({.what = plot,
                              .setting = fmt::format("{}, {} requests/s of {} tokens", way.name,
                                                     rate, arriving_prompt),
                              .unit = "ms",
                              .ours = 1e3 * end.mean_ttft_s,
                              .note = "published figure not at hand",
                              .plot = plot,
                              .line = way.name,
                              .x = rate});
      }
  paper.claims = {
      {"TTFT of shift is within 5 % of the best of DP, TP and SP at each length", ttft_near_best},
      {"TPOT of shift is within 15 % of TP's", tpot_near_tp},
      {"throughput of shift is at least 0.75 of DP's", throughput_near_dp}};
  for (const char* what : {"TTFT", "TPOT"})
    paper.plots.push_back({what, "tokens of the prompt", "ms", true, true});
  paper.plots.push_back({"throughput", "tokens of the prompt", "tokens/s", true, true});
  for (const char* what : {"TTFT of arrivals", "TTFT of bursts"})
    paper.plots.push_back({what, "requests/s", "ms", true, true});
  return paper;
}

}  // namespace pecia::simulation::papers
