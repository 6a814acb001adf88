// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Programs of a small model on small grids.

#include <limits>

#include "lib/engine/execute/trial_passes.hpp"
#include "lib/simulation/program.hpp"

namespace pecia::simulation {

inline model::ModelConfig small_model(int64_t layers) {
  model::ModelConfig config;
  config.vocab = 512, config.hidden = 64, config.ffn = 128, config.layers = layers;
  config.num_heads = 8, config.num_kv_heads = 4, config.head_dim = 8;
  config.rope.rotary_dim = 8;
  config.max_positions = 4096;
  config.pattern.resize(config.layers);
  return config;
}

struct Grid {
  const char* name;
  int cp = 1, sp = 1, tp = 1;
  parallel::AttentionExchange prefill = parallel::AttentionExchange::pass_kv,
                              decode = parallel::AttentionExchange::pass_q;
  parallel::Sharding sharding = parallel::Sharding::base;

  int ranks() const { return cp * sp * tp; }
  execute::TrialPasses passes() const {
    return {.instances = cp,
            .virtual_ranks = cp,
            .modes = {.prefill = sharding, .decode = sharding, .decode_ring = decode},
            .prefill_ring = prefill};
  }
  execute::PhantomSettings settings(int rank) const {
    return {.ranks = ranks(),
            .rank = rank,
            .memory_bytes = std::numeric_limits<int64_t>::max(),
            .replica = {.sp = sp, .tp = tp, .kv_tokens = 4096}};
  }
};

inline const std::vector<Grid>& grids() {
  using parallel::AttentionExchange;
  using parallel::Sharding;
  static const std::vector<Grid> all{
      {"alone"},
      {"pass_kv", 3},
      {"pass_q", 3, 1, 1, AttentionExchange::pass_q},
      {"broadcast_q", 2, 1, 1, AttentionExchange::pass_kv, AttentionExchange::broadcast_q},
      {"ulysses", 1, 2},
      {"usp", 2, 2},
      {"tp", 1, 1, 4},
      {"cp and tp", 2, 1, 2},
      {"sp_tp", 1, 2, 2, AttentionExchange::pass_kv, AttentionExchange::pass_q, Sharding::sp_tp},
      {"shift", 1, 2, 2, AttentionExchange::pass_kv, AttentionExchange::pass_q, Sharding::shift},
      {"gathered", 1, 2, 2, AttentionExchange::pass_kv, AttentionExchange::pass_q,
       Sharding::gathered},
  };
  return all;
}

inline std::vector<Program> programs(const model::ModelConfig& config, const Grid& grid,
                                     const schedule::Plan& pass, Layers layers) {
  std::vector<Program> all;
  for (int rank = 0; rank < grid.ranks(); ++rank)
    all.push_back(record(config, {grid.settings(rank), {}, pass}, layers));
  return all;
}

}  // namespace pecia::simulation
