// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "apps/bench/ops/inputs.hpp"

namespace pecia::bench::ops {

/// The sizes of a mixture whose shapes are timed.
struct Mixture {
  std::string name;
  int64_t hidden, ffn, experts, k;
};
inline const Mixture qwen3_moe{"Qwen3-30B-A3B", 2048, 768, 128, 8};
inline const Mixture gpt_oss{"gpt-oss-20b", 2880, 2880, 32, 4};

/// All experts of a layer, for rows that choose them evenly.
Case experts(const Mixture& mixture, int64_t rows, DType dtype);

}  // namespace pecia::bench::ops
