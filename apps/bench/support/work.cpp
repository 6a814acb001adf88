// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/work.hpp"

#include <algorithm>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_vector.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::bench {
namespace {

/// Keys that the query at `position` sees in a layer.
int64_t visible(int64_t position, kernels::Window window) {
  return std::min(position + 1, window.reach(position));
}

/// Σ visible(position) over [first, first + count).
double pairs(int64_t first, int64_t count, kernels::Window window) {
  const std::vector<parallel::StridedRange> keys{{0, first + count, 1}};
  return static_cast<double>(parallel::count_seen({first, first + count}, keys, window));
}

/// Bytes of a weight, including the scales of codes.
int64_t bytes_of(const model::LinearWeight& weight, std::optional<DType> dtype) {
  int64_t bytes = 0;
  for (const auto& part : weight.parts) {
    if (part.scales || !dtype)
      bytes += part.bytes() - (part.bias ? part.bias.elements() * size_of(part.bias.dtype()) : 0);
    else
      bytes += part.weight.rows() * row_bytes(*dtype, part.in());
  }
  return bytes;
}

}  // namespace

double head_flops_per_row(const model::ModelConfig& config) {
  return 2.0 * static_cast<double>(config.vocab) * static_cast<double>(config.hidden);
}

double layer_flops_per_token(const model::ModelConfig& config) {
  return config.flops_per_token() - head_flops_per_row(config) +
         config.recurrence_flops_per_token();
}

double attention_flops(const model::ModelConfig& config, int64_t first, int64_t count) {
  const bool expands = config.latent && count > 1;  // prompts (ranks/parallel/latent_rule.hpp)
  double flops = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.mixer(layer) != model::MixerKind::attention) continue;
    const int64_t of_head = expands         ? config.latent->query_dim() + config.latent->value_dim
                            : config.latent ? config.head_dim + config.value_dim()
                                            : 2 * config.heads(layer).dim;
    flops += 2.0 * static_cast<double>(config.num_heads * of_head) *
             pairs(first, count, config.pattern[layer].window);
  }
  return flops;
}

double prefill_flops(const model::ModelConfig& config, int64_t tokens, int64_t cached) {
  return static_cast<double>(tokens) * layer_flops_per_token(config) -
         static_cast<double>(tokens - 1) * config.flops_after_mixers() +
         attention_flops(config, cached, tokens) + head_flops_per_row(config);
}

double decode_flops(const model::ModelConfig& config, int64_t batch, int64_t cached) {
  return static_cast<double>(batch) *
         (layer_flops_per_token(config) + attention_flops(config, cached, 1) +
          head_flops_per_row(config));
}

int64_t sequences_that_fit(std::span<const int64_t> bytes_of_each, int64_t room_bytes) {
  int64_t count = 0;
  for (const int64_t bytes : bytes_of_each) {
    if (bytes > room_bytes) break;
    room_bytes -= bytes;
    ++count;
  }
  return count;
}

double decode_bytes(const model::ModelConfig& config, const model::Weights& weights, int64_t batch,
                    int64_t cached, DType kv_dtype, int ranks, model::Quantize quantize) {
  const int64_t rank_rows = (batch + ranks - 1) / ranks;
  const double touched =
      config.experts
          ? kernels::touched_experts(rank_rows, config.experts->per_token, config.experts->count) /
                static_cast<double>(config.experts->count)
          : 0;
  double matrices = static_cast<double>(
      bytes_of(weights.head, type_of_matrix(quantize, model::MatrixKind::head)));
  for (const model::LayerWeights& layer : weights.layers)
    layer.for_each_matrix([&](model::MatrixKind kind, const model::LinearWeight& matrix) {
      if (kind == model::MatrixKind::head_keys) return;  // answers are absorbed
      const bool of_experts = model::role_of(kind).unit == model::CutUnit::expert_ffn;
      matrices += static_cast<double>(bytes_of(matrix, type_of_matrix(quantize, kind))) *
                  (of_experts ? touched : 1);
    });
  int64_t kept = config.state_bytes();  // of a sequence: states, and keys and values
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.mixer(layer) != model::MixerKind::attention) continue;
    const auto [kv_heads, head_dim] = config.heads(layer);
    kept += visible(cached, config.pattern[layer].window) * (config.latent ? 1 : 2) * kv_heads *
            vector_bytes(kv_dtype, head_dim);
  }
  return matrices * static_cast<double>(std::min<int64_t>(batch, ranks)) +
         static_cast<double>(batch) * static_cast<double>(kept);
}

}  // namespace pecia::bench
