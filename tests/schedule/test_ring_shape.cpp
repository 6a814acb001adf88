// SPDX-License-Identifier: Apache-2.0
/// What travels round a ring, in the terms of the rule that chooses it.

#include <gtest/gtest.h>

#include "lib/engine/schedule/job_limits.hpp"
#include "lib/model/config/presets.hpp"

namespace pecia::schedule {
namespace {

resources::Resources in_bf16(DType wire) {
  resources::Resources resources;
  resources.kv_dtype = DType::bf16;
  resources.wire = wire;
  return resources;
}

TEST(RingShape, OfHeadsHasTheBytesOfAnElement) {
  const auto config = model::config_of_preset_or_folder("llama-3-8b");
  const parallel::RingShape shape = ring_shape(config, in_bf16(DType::fp32));
  EXPECT_EQ(shape.num_heads, 32);
  EXPECT_EQ(shape.num_kv_heads, 8);
  EXPECT_EQ(shape.kv_bytes, 2);
  EXPECT_EQ(shape.q_bytes, 4);
  EXPECT_EQ(shape.out_bytes, 4);
}

/// DeepSeek-V3: a token's 576 numbers for all heads, queries of 576 and results of 512 numbers a head.
/// The rule counts per element of D, where 4 · D is 2 · (576 + 512).
TEST(RingShape, OfLatentsHasTheBytesThatTravel) {
  const auto config = model::config_of_preset_or_folder("deepseek-v3");
  constexpr double d = 544;
  for (const DType wire : {DType::fp32, DType::bf16}) {
    const auto on_wire = static_cast<double>(size_of(wire));
    const parallel::RingShape shape = ring_shape(config, in_bf16(wire));
    EXPECT_DOUBLE_EQ(2 * shape.num_kv_heads * d * shape.kv_bytes, 576 * 2);
    EXPECT_DOUBLE_EQ(shape.num_heads * d * shape.q_bytes, 128 * 576 * on_wire);
    EXPECT_DOUBLE_EQ(shape.num_heads * d * shape.out_bytes, 128 * 512 * on_wire);
    EXPECT_DOUBLE_EQ(query_bytes_per_row(config, in_bf16(wire)),
                     61 * 128 * ((576 + 512) * on_wire + 4));
  }
}

/// On links that hide nothing, the smaller messages travel: rows for all heads already where one token
/// of 114 is new, and keys and values of 8 heads for 32 not before one of two is.
TEST(RingShape, OfLatentsLetsKeysTravelWhereHeadsWouldNot) {
  const auto chosen = [](const char* model, double new_tokens) {
    parallel::RingInputs in;
    in.ranks = 2;
    in.shape = ring_shape(model::config_of_preset_or_folder(model), in_bf16(DType::bf16));
    in.rates = {.flops = 1e15, .bandwidth = 1e6, .all_to_all_bandwidth = 1e6};
    in.load.add(static_cast<int64_t>(new_tokens), 100'000 - static_cast<int64_t>(new_tokens));
    return parallel::rule_b(in).ring;
  };
  using enum parallel::AttentionExchange;
  EXPECT_EQ(chosen("deepseek-v3", 2000), pass_kv);
  EXPECT_EQ(chosen("llama-3-8b", 2000), pass_q);
  EXPECT_EQ(chosen("deepseek-v3", 200), pass_q);
}

}  // namespace
}  // namespace pecia::schedule
