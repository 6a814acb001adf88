// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/a800_service.hpp"

namespace pecia::simulation::papers {
namespace {

// Llama-2-7B in bf16 on A800s.
constexpr double layers = 32, hidden = 4096, weight_bytes = 13.5e9, row_flops = 13.5e9;
constexpr double kv_bytes = 2 * layers * hidden * 2, pair_flops = 4 * layers * hidden;
constexpr double peak_flops = 312e12, flops_share = 0.5, memory_bandwidth = 2e12;
constexpr double gpu_bytes = 72e9, activation_bytes = 4e9;
constexpr double nvlink = 200e9;             // bytes per second each way
constexpr double network_of_a_gpu = 12.5e9;  // 4 × 200 Gbit/s for eight
constexpr int gpus_of_a_server = 8;
constexpr double gpu_message_s = 20e-6, sum_s = 15e-6;

}  // namespace

schedule::TeamTimes times_of(const ServiceGrid& grid) {
  const double tp = grid.tp, flops = flops_share * peak_flops * tp;
  // Two sums in each layer.
  const double sums_s = tp > 1 ? 2 * layers * sum_s : 0;
  const double summed_s = 2 * layers * hidden * 2 * 2 * (tp - 1) / tp / nvlink;
  const double pass_s = weight_bytes / tp / memory_bandwidth + sums_s;
  const schedule::PassTimes alone{
      schedule::RateFit({pass_s, row_flops / flops + summed_s, pair_flops / flops}),
      schedule::RateFit({pass_s, row_flops / flops + summed_s, kv_bytes / tp / memory_bandwidth})};
  return {
      alone,
      {.message_s = gpu_message_s,
       .bytes_per_second = grid.instances * grid.tp > gpus_of_a_server ? network_of_a_gpu : nvlink,
       .kv_bytes_per_token = kv_bytes / tp,
       .query_bytes_per_row = 4 * layers * (2 * hidden + 32) / tp,
       .layers = static_cast<int>(layers),
       .hides_keys = true},
      grid.instances};
}

schedule::SchedulerLimits limits_of(const ServiceGrid& grid, job::Objective objective) {
  const double free_bytes = grid.tp * (gpu_bytes - activation_bytes) - weight_bytes;
  schedule::SchedulerLimits limits;
  limits.ring_size = grid.instances;
  limits.elastic = grid.elastic;
  limits.answering = grid.answering;
  limits.kv_tokens = static_cast<int64_t>(free_bytes / kv_bytes);
  limits.max_sequences = 512;
  limits.max_batch_tokens = grid.elastic ? 8192 : 8192 * grid.instances;
  limits.max_positions = 1 << 20;
  limits.vocab = 32000;
  limits.policy = grid.policy;
  limits.modes.decode_ring = parallel::AttentionExchange::broadcast_q;
  limits.objective = objective;
  limits.scheduler = grid.scheduler;
  limits.parts = grid.parts;
  limits.team_times = times_of(grid);
  return limits;
}

}  // namespace pecia::simulation::papers
