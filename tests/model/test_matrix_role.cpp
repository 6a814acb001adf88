// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "tests/model/small_checkpoints.hpp"

namespace pecia::model {
namespace {

TEST(MatrixRole, HasTheShapeOfTheMatrix) {
  for (const Family family : {Family::llama, Family::glm, Family::internlm2}) {
    ModelConfig config = small_model(family);
    config.attention_bias = family == Family::glm;
    const Weights weights = load(config,
                                 family == Family::llama ? llama_file()
                                 : family == Family::glm ? glm_file()
                                                         : internlm2_file(),
                                 {}, {});
    for (const LayerWeights& layer : weights.layers)
      for (const MatrixKind kind : layer_kinds) {
        const MatrixRole& role = role_of(kind);
        const LinearWeight& matrix = layer.matrix(kind);
        EXPECT_EQ(matrix.out(), role.out(config)) << role.name;
        EXPECT_EQ(matrix.in(), role.in(config)) << role.name;
        EXPECT_EQ(static_cast<bool>(matrix.parts.front().bias), role.has_bias(config)) << role.name;
      }
    EXPECT_EQ(weights.head.out(), role_of(MatrixKind::head).out(config));
    EXPECT_EQ(weights.head.in(), role_of(MatrixKind::head).in(config));
  }
}

TEST(MatrixRole, OfTheHeadIsOfNoLayer) {
  const ModelConfig config = small_model(Family::llama);
  const Weights weights = load(config, llama_file(), {}, {});
  EXPECT_THROW(weights.layers.front().matrix(MatrixKind::head), InvalidArgument);
}

/// Every element of a unit has one owner, but for KV heads that ranks share.
TEST(UnitParts, CoverTheUnitInOrder) {
  ModelConfig config;
  config.num_heads = 12, config.num_kv_heads = 4, config.head_dim = 8;
  config.ffn = 37, config.vocab = 101;
  const auto expect_cover = [&](CutUnit unit, int ranks, int64_t elements) {
    int64_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const parallel::RowRange part = unit_part(config, unit, {ranks, rank});
      EXPECT_EQ(part.begin, end) << "rank " << rank << " of " << ranks;
      end = part.end;
    }
    EXPECT_EQ(end, elements);
  };
  for (const int ranks : {1, 2, 4}) {
    expect_cover(CutUnit::query_heads, ranks, 96);
    expect_cover(CutUnit::kv_heads, ranks, 32);
    expect_cover(CutUnit::ffn, ranks, 37);
    expect_cover(CutUnit::vocab, ranks, 101);
  }
  EXPECT_EQ(unit_part(config, CutUnit::kv_heads, {12, 4}),
            unit_part(config, CutUnit::kv_heads, {12, 3}))
      << "three ranks share a KV head";
}

}  // namespace
}  // namespace pecia::model
