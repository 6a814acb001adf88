// SPDX-License-Identifier: Apache-2.0
/// Numbers below 2⁻¹²⁶, the least normal one of fp32 and bf16, count for themselves or for zero, as
/// instructions for products of bf16 take them; nothing beside them changes. Those of fp16 are
/// normal in fp32 and count in full.

#include <cmath>
#include <numeric>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

constexpr float tiny = 0x1p-130f;  // a subnormal number of fp32 and of bf16
constexpr float least_normal = 0x1p-126f;

PECIA_OP_TEST(Subnormals);

/// Standard normal numbers; every second one is `other`, or times it.
std::vector<float> half_of(int64_t count, uint64_t seed, float other) {
  std::vector<float> numbers = random_floats(count, seed);
  for (int64_t i = 1; i < count; i += 2) numbers[i] *= other;
  return numbers;
}

/// Few rows, which are multiplied as they come, and many, which are packed first.
constexpr int64_t row_counts[] = {1, 5, 40, 100};

TEST_P(Subnormals, OfWeightsAreLostBesideOthers) {
  constexpr int64_t out = 33, depth = 64;
  for (const int64_t rows : row_counts) {
    Tensor x = Tensor::random({rows, depth}, DType::fp32, 1);
    Tensor y = Tensor::filled({rows, out}, 9), with_zeros = y;
    Tensor weight({out, depth}, dtype_, half_of(out * depth, 2, tiny));
    Tensor zeros({out, depth}, dtype_, half_of(out * depth, 2, 0));
    device_.backend->linear({x.view(), weight.view(), {}, y.view()}, device_.stream);
    device_.backend->linear({x.view(), zeros.view(), {}, with_zeros.view()}, device_.stream);
    EXPECT_EQ(y.values(), with_zeros.values()) << rows << " rows";
  }
}

TEST_P(Subnormals, OfActivationsGiveNoMoreThanTheyAre) {
  constexpr int64_t out = 33, depth = 64;
  for (const int64_t rows : row_counts) {
    Tensor x({rows, depth}, DType::fp32, std::vector<float>(rows * depth, tiny));
    Tensor weight = Tensor::random({out, depth}, dtype_, 2);
    Tensor y = Tensor::filled({rows, out}, 9);
    device_.backend->linear({x.view(), weight.view(), {}, y.view()}, device_.stream);
    EXPECT_TRUE(all_close(y.values(), std::vector<float>(rows * out, 0), depth * least_normal, 0))
        << rows << " rows";
  }
}

/// Multiples of 2⁻²⁴, the least number of fp16, times whole numbers: every sum is exact.
TEST_P(Subnormals, OfHalfPrecisionCountInFull) {
  if (dtype_ != DType::fp16) return;
  constexpr int64_t out = 33, depth = 64;
  for (const int64_t rows : row_counts) {
    std::vector<float> x_values(rows * depth), weights(out * depth), expected(rows * out, 0);
    for (size_t i = 0; i < x_values.size(); ++i) x_values[i] = static_cast<float>(i % 7) - 3;
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = (static_cast<float>(i % 41) - 20) * 0x1p-24f;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < out; ++column)
        for (int64_t i = 0; i < depth; ++i)
          expected[row * out + column] += x_values[row * depth + i] * weights[column * depth + i];
    Tensor x({rows, depth}, DType::fp32, x_values), weight({out, depth}, dtype_, weights);
    Tensor y = Tensor::filled({rows, out}, 9);
    device_.backend->linear({x.view(), weight.view(), {}, y.view()}, device_.stream);
    EXPECT_EQ(y.values(), expected) << rows << " rows";
  }
}

std::vector<float> attend(Device& device, DType dtype, int64_t rows, float query_scale,
                          float key_scale, float value_scale) {
  constexpr int64_t heads = 4, kv_heads = 2, head_dim = 32, keys = 150;
  Tensor q({rows, heads, head_dim}, DType::fp32,
           random_floats(rows * heads * head_dim, 1, query_scale));
  Tensor k({kv_heads, keys, head_dim}, dtype,
           random_floats(kv_heads * keys * head_dim, 2, key_scale));
  Tensor v({kv_heads, keys, head_dim}, dtype, half_of(kv_heads * keys * head_dim, 3, value_scale));
  Tensor out = Tensor::filled({rows, heads, head_dim}, 9), lse = Tensor::filled({rows, heads}, 9);
  std::vector<int64_t> query_positions(rows);
  std::iota(query_positions.begin(), query_positions.end(), keys - rows);
  const kernels::AttentionItem item = {0, rows, 0, 1};
  const kernels::KeyRun run = {0, keys * head_dim, keys, 0};
  device.backend->attention({.q = q.view(),
                             .query_positions = query_positions,
                             .items = {&item, 1},
                             .runs = {&run, 1},
                             .keys = {k.view().data(), v.view().data()},
                             .kv_dtype = dtype,
                             .num_kv_heads = kv_heads,
                             .scale = 0.25f,
                             .out = out.view(),
                             .lse = lse.view()},
                            device.stream);
  return out.values();
}

TEST_P(Subnormals, OfKeysAndQueriesMakeEqualWeights) {
  for (const int64_t rows : {1, 3, 100}) {
    const auto mean = attend(device_, dtype_, rows, 1, 0, 1);
    EXPECT_EQ(attend(device_, dtype_, rows, 1, tiny, 1), mean) << rows << " rows";
    EXPECT_EQ(attend(device_, dtype_, rows, tiny, 1, 1), mean) << rows << " rows";
  }
}

TEST_P(Subnormals, OfValuesStayInTheirColumns) {
  if (dtype_ == DType::fp16) return;  // rounded to zero as they are stored
  for (const int64_t rows : {1, 3, 100})
    EXPECT_TRUE(all_close(attend(device_, dtype_, rows, 1, 1, tiny),
                          attend(device_, dtype_, rows, 1, 1, 0), least_normal, 0))
        << rows << " rows";
}

TEST_P(Subnormals, OfARowAreNormalizedLikeZeros) {
  Tensor x = Tensor::filled({1, 40}, tiny), weight = Tensor::random({40}, dtype_, 1);
  device_.backend->rms_norm({x.view(), weight.view(), 1e-6f, x.view()}, device_.stream);
  EXPECT_TRUE(all_close(x.values(), std::vector<float>(40, 0), 1e4 * least_normal, 0));
}

TEST_P(Subnormals, OfAGateCloseIt) {
  Tensor gate({1, 40}, DType::fp32, half_of(40, 1, tiny)), up = Tensor::filled({1, 40}, 2);
  Tensor expected({1, 40}, DType::fp32, half_of(40, 1, 0)), out = gate;
  device_.backend->gated_activation({gate.view(), up.view(), out.view()}, device_.stream);
  device_.backend->gated_activation({expected.view(), up.view(), expected.view()}, device_.stream);
  EXPECT_TRUE(all_close(out.values(), expected.values(), 8 * least_normal, 0));
}

}  // namespace
}  // namespace pecia::test
