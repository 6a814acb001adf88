// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "apps/bench/ops/inputs.hpp"

namespace pecia::bench::ops {

/// The sizes of a recurrent layer.
struct RecurrentLayer {
  std::string name;
  bool corrects;
  int64_t key_heads, key_dim, heads, value_dim, taps;

  int64_t channels() const { return 2 * key_heads * key_dim + heads * value_dim; }
};
inline const RecurrentLayer delta_net{"Qwen3-Next-80B-A3B", true, 16, 128, 32, 128, 4};
inline const RecurrentLayer mamba{"nemotron_h", false, 8, 128, 128, 64, 4};

/// Some sequences of `rows` rows each.
Case causal_conv(const RecurrentLayer& layer, int64_t sequences, int64_t rows);
Case recurrence_gates(const RecurrentLayer& layer, int64_t rows);
Case recurrence(const RecurrentLayer& layer, int64_t sequences, int64_t rows);

}  // namespace pecia::bench::ops
