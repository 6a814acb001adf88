// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/simulation/decode.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "lib/engine/execute/trial_passes.hpp"
#include "lib/simulation/replay.hpp"

namespace pecia::bench {
namespace {

using parallel::AttentionExchange;

/// Microseconds of a layer's attention. `servers` 1: the op alone.
struct DecodeRow {
  int64_t context, batch;
  int servers;
  double op_us, send_receive_us, all_to_all_us;
};
constexpr std::array decode_rows{
    DecodeRow{128'000, 1, 1, 38.9, 0, 0},        DecodeRow{128'000, 1, 2, 22.0, 32.3, 81.1},
    DecodeRow{128'000, 1, 4, 14.7, 105.7, 79.9}, DecodeRow{32'000, 4, 1, 60.1, 0, 0},
    DecodeRow{32'000, 4, 2, 13.9, 33.3, 66.8},   DecodeRow{32'000, 4, 4, 9.6, 104.9, 72.2}};
constexpr size_t fitted_row = 1;

struct StepParts {
  double op_us = 0, send_receive_us = 0, all_to_all_us = 0;

  /// 0: the op, 1: the ring's messages, 2: the all-to-all.
  int largest() const {
    const double all[] = {op_us, send_receive_us, all_to_all_us};
    return static_cast<int>(std::max_element(std::begin(all), std::end(all)) - std::begin(all));
  }
};

/// A layer in the middle of the model, from when a first rank attends: until all queries have been
/// everywhere, the last op, and then until all outputs are home. Ranks without rows wait for queries
/// from much earlier on, which does not count.
StepParts parts_of(const model::ModelConfig& config, const cluster_files::Cluster& cluster,
                   const DecodeRow& row) {
  const execute::TrialPasses passes{
      .instances = row.servers, .virtual_ranks = row.servers, .modes = {}};
  const int ranks = row.servers * gpus_per_server;
  const schedule::Plan plan = passes.step(0, row.batch, row.context, true);
  std::vector<simulation::Program> programs;
  execute::PhantomSettings settings;
  settings.ranks = ranks;
  settings.quantize = model::Quantize::fp8;
  settings.memory_bytes = std::numeric_limits<int64_t>::max();
  settings.traits.operand_type = [](DType) { return DType::bf16; };
  settings.replica.tp = gpus_per_server;
  settings.replica.kv_dtype = DType::bf16;
  settings.replica.kv_tokens = row.batch * passes.slots(row.context + 2 * row.servers);
  for (settings.rank = 0; settings.rank < ranks; ++settings.rank)
    programs.push_back(record(config, {settings, {}, plan}, simulation::Layers::folded));
  const auto layer = static_cast<int32_t>(config.layers / 2);
  constexpr double never = std::numeric_limits<double>::infinity();
  double begin_s = never, op_s = 0, queries_s = -never, end_s = -never;
  replay(programs, cluster, [&](const simulation::Moment& moment) {
    if (moment.layer != layer || moment.rank % gpus_per_server != 0) return;  // one ring of eight
    const auto in = [&](const char* span) { return std::strcmp(moment.step.span, span) == 0; };
    const auto* const op = std::get_if<kernels::OpWork>(&moment.step.what);
    if (in("attention") && op != nullptr && op->flops > 0) {
      begin_s = std::min(begin_s, moment.begin_s);
      op_s = std::max(op_s, moment.end_s - moment.begin_s);
    }
    if (in("ring_pass_q")) queries_s = std::max(queries_s, moment.end_s);
    if (in("partial_outputs")) end_s = std::max(end_s, moment.end_s);
  });
  if (row.servers == 1) return {1e6 * op_s, 0, 0};
  return {1e6 * op_s, 1e6 * (queries_s - begin_s), 1e6 * (end_s - queries_s - op_s)};
}

/// Sets the latency of links, so that the fitted row's queries take as long as published, and returns
/// the microseconds that its all-to-all has beside. Where ops hide a part of the way, a step falls
/// short, so there are a few.
double fit_links(const model::ModelConfig& config, cluster_files::Cluster& cluster) {
  const DecodeRow& row = decode_rows[fitted_row];
  double& us = cluster.links[static_cast<size_t>(comm::LinkLevel::rack)].us;
  constexpr int steps = 4;
  for (int i = 0; i < steps; ++i)
    us += row.send_receive_us - parts_of(config, cluster, row).send_receive_us;
  return row.all_to_all_us - parts_of(config, cluster, row).all_to_all_us;
}

}  // namespace

std::string foresee_decode(const model::ModelConfig& config, cluster_files::Cluster cluster,
                           Results& results) {
  const double beside_us = fit_links(config, cluster);
  results.line(fmt::format(
      "attention of a decode step, in µs of a layer; fitted to the row marked *: {:.0f} µs for a "
      "small message, and {:.0f} µs beside for an all-to-all",
      cluster.links[static_cast<size_t>(comm::LinkLevel::rack)].us, beside_us));
  results.columns(
      "context|batch|servers|    op|foreseen|SendRecv|foreseen|all-to-all|foreseen|largest");
  std::string problem;
  for (size_t i = 0; i < decode_rows.size(); ++i) {
    const DecodeRow& row = decode_rows[i];
    const StepParts published_parts{row.op_us, row.send_receive_us, row.all_to_all_us};
    StepParts parts = parts_of(config, cluster, row);
    if (row.servers > 1) parts.all_to_all_us += beside_us;
    const bool right = parts.largest() == published_parts.largest();
    results.row("{}|{}{}|{}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{}", row.context,
                i == fitted_row ? "*" : "", row.batch, row.servers, row.op_us, parts.op_us,
                row.send_receive_us, parts.send_receive_us, row.all_to_all_us, parts.all_to_all_us,
                right ? "right" : "wrong");
    results.write({{"context", row.context},
                   {"batch", row.batch},
                   {"servers", row.servers},
                   {"fitted", i == fitted_row},
                   {"published_us", {row.op_us, row.send_receive_us, row.all_to_all_us}},
                   {"foreseen_us", {parts.op_us, parts.send_receive_us, parts.all_to_all_us}}});
    if (!right)
      problem = fmt::format(
          "another part of a decode step is foreseen as the largest: {} servers, "
          "batch {}",
          row.servers, row.batch);
  }
  return problem;
}

}  // namespace pecia::bench
