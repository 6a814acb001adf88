// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/estimated_times.hpp"

#include "lib/base/core/codes.hpp"

namespace pecia::execute {

schedule::PassTimes estimated_times(const model::ModelConfig& config,
                                    const resources::Resources& resources, DType weights,
                                    const model::CodeUse& codes, double peak_flops) {
  const double cpu_bandwidth = 8e9, gpu_bandwidth = 2e12;  // bytes per second of a rank
  const double prefill_share = 0.4, attention_share = 0.2, decode_share = 0.2;  // of the peak
  const int ring = resources.shares();  // elastic: one instance
  // Of all stages, each of which has a part of the weights: passes go through them behind each other.
  const double ranks = static_cast<double>(ring) * resources.sp * resources.tp * resources.pp;
  const double flops = peak_flops / resources.dp * ring / resources.cp;
  const double bandwidth = ranks * (resources.gpus ? gpu_bandwidth : cpu_bandwidth);
  // Each rank of a ring reads all weights; each rank of sp and tp reads a part.
  const auto seconds_of = [&](int64_t parameters, int64_t more_bytes) {
    const int64_t bytes = row_elements(weights, parameters) * size_of(weights) + more_bytes;
    return ring * static_cast<double>(bytes) / bandwidth;
  };
  const double weight_s = seconds_of(config.parameters(), bytes_by_codes(config, weights, codes));
  const double active_s =
      seconds_of(config.active_parameters(), active_bytes_by_codes(config, weights, codes));
  const auto kv_bytes = static_cast<double>(config.kv_bytes_per_token(resources.kv_dtype));
  return {schedule::RateFit({weight_s, config.flops_per_token() / (prefill_share * flops),
                             config.prompt_flops_per_pair() / (attention_share * flops)}),
          schedule::RateFit(
              {active_s, config.flops_per_token() / (decode_share * flops), kv_bytes / bandwidth})};
}

}  // namespace pecia::execute
