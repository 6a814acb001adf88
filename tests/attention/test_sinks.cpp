// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lib/model/attention/attention_steps.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

constexpr int64_t heads = 3, head_dim = 4;

/// Steps of two layers, and results of some rows over all their keys.
class Sinks : public testing::Test {
 protected:
  Partial results(int64_t rows) {
    out_ = test::random_floats(rows * heads * head_dim, 1);
    lse_ = test::random_floats(rows * heads, 2);
    return {TensorView(static_cast<void*>(out_.data()), DType::fp32, {rows, heads, head_dim}),
            TensorView(static_cast<void*>(lse_.data()), DType::fp32, {rows, heads})};
  }

  test::CpuCompute compute_;
  KvCache cache_{{2, 1, head_dim, DType::fp32}, 8, *compute_.device};
  AttentionSteps steps_{compute_, cache_, heads, {0, 0}, kernels::RowInvariant::no};
  std::vector<float> out_, lse_;
};

TEST_F(Sinks, TakeTheirShareOfEachRowsAttention) {
  std::vector<float> first(heads, 100.0f), second = {0.5f, -2.0f, 3.0f};
  const auto view = [](std::vector<float>& logits) {
    return TensorView(static_cast<void*>(logits.data()), DType::fp32, {heads});
  };
  steps_.set_sink_logits({view(first), view(second)});
  for (const int64_t rows : {0, 1, 2500}) {
    const Partial to = results(rows);
    std::vector<float> out = out_, lse = lse_;
    for (int64_t i = 0; i < rows * heads; ++i) {
      const double keys = std::exp(double{lse[i]}), sink = std::exp(double{second[i % heads]});
      for (int64_t d = 0; d < head_dim; ++d)
        out[i * head_dim + d] *= static_cast<float>(keys / (keys + sink));
      lse[i] = static_cast<float>(std::log(keys + sink));
    }
    steps_.add_sinks(1, to);
    EXPECT_TRUE(test::all_close(out_, out, 1e-6, 1e-6)) << rows << " rows";
    EXPECT_TRUE(test::all_close(lse_, lse, 1e-6, 1e-6)) << rows << " rows";
  }
}

TEST_F(Sinks, HaveAllTheAttentionOfARowWithoutKeys) {
  std::vector<float> logits = {1, 2, 3};
  const TensorView view(static_cast<void*>(logits.data()), DType::fp32, {heads});
  steps_.set_sink_logits({view, view});
  const Partial to = results(1);
  std::fill(out_.begin(), out_.end(), 0.0f);
  std::fill(lse_.begin(), lse_.end(), -std::numeric_limits<float>::infinity());
  steps_.add_sinks(0, to);
  EXPECT_EQ(out_, std::vector<float>(heads * head_dim, 0.0f));
  EXPECT_EQ(lse_, logits);
}

TEST_F(Sinks, ThatAreNotThereChangeNothing) {
  const Partial to = results(5);
  const std::vector<float> out = out_, lse = lse_;
  steps_.add_sinks(0, to);
  EXPECT_EQ(out_, out);
  EXPECT_EQ(lse_, lse);
}

}  // namespace
}  // namespace pecia::attention
