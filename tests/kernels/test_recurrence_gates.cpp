// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::RecurrenceGatesArgs;

class RecurrenceGates : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, RecurrenceGates, testing::ValuesIn(every_device()),
                         name_of_device);

constexpr float gates_nan = std::numeric_limits<float>::quiet_NaN();

/// softplus(0) = ln 2, softplus(−1) = 0.31326169, softplus(21) = 21, and sigmoid(1) = 0.73105858.
TEST_P(RecurrenceGates, OfADeltaNet) {
  Tensor a({2, 3}, DType::fp32, {0.5f, -2, 20, gates_nan, 0, -90});
  Tensor b({2, 3}, DType::fp32, {0, 1, -200, 0, gates_nan, 200});
  Tensor rate({3}, DType::fp32, {-1, -2, -0.5f}), bias({3}, DType::fp32, {-0.5f, 1, 1});
  Tensor decay = Tensor::filled({2, 3}, 0), strength = Tensor::filled({2, 3}, 0);
  device_.backend->recurrence_gates(
      {a.view(), b.view(), rate.view(), bias.view(), decay.view(), strength.view()},
      device_.stream);
  EXPECT_TRUE(all_close(
      decay.values(),
      std::vector<float>{-0.69314718f, -0.62652338f, -10.5f, gates_nan, -2.6265234f, -0.0f}, 1e-37,
      1e-6));
  EXPECT_TRUE(all_close(strength.values(),
                        std::vector<float>{0.5f, 0.73105858f, 0, 0.5f, gates_nan, 1}, 1e-37, 1e-6));
}

TEST_P(RecurrenceGates, OfMamba) {
  Tensor a({1, 4}, DType::fp32, {0, -10, 30, gates_nan});
  Tensor rate({4}, DType::fp32, {-1, -2, -0.5f, -1}), bias = Tensor::filled({4}, 0);
  Tensor decay = Tensor::filled({1, 4}, 0), strength = Tensor::filled({1, 4}, 0);
  RecurrenceGatesArgs args{.a = a.view(),
                           .b = {},
                           .rate = rate.view(),
                           .bias = bias.view(),
                           .decay = decay.view(),
                           .strength = strength.view()};
  device_.backend->recurrence_gates(args, device_.stream);
  EXPECT_TRUE(all_close(strength.values(),
                        std::vector<float>{0.69314718f, 4.5398899e-5f, 30, gates_nan}, 0, 1e-6));
  args.least_step = 0.001f, args.most_step = 0.5f;
  device_.backend->recurrence_gates(args, device_.stream);
  EXPECT_TRUE(
      all_close(strength.values(), std::vector<float>{0.5f, 0.001f, 0.5f, gates_nan}, 0, 1e-6));
  EXPECT_TRUE(
      all_close(decay.values(), std::vector<float>{-0.5f, -0.002f, -0.25f, gates_nan}, 0, 1e-6));
}

TEST_P(RecurrenceGates, AgreeWithDoubleWhereverTheyStand) {
  for (const int64_t heads : {1, 7, 8, 16, 17, 48})
    for (const int64_t rows : {0, 1, 9}) {
      const auto scaled = [&](uint64_t seed, float by, int64_t gap) {
        std::vector<float> values = Tensor::random({rows, heads}, DType::fp32, seed).values();
        for (float& value : values) value *= by;
        return Tensor({rows, heads}, DType::fp32, values, gap);
      };
      Tensor a = scaled(1, 12, 3), b = scaled(2, 12, 1);
      Tensor rate = Tensor::random({heads}, DType::fp32, 3);
      Tensor bias = Tensor::random({heads}, DType::fp32, 4);
      Tensor decay = Tensor::filled({rows, heads}, 0, 2), strength = decay;
      device_.backend->recurrence_gates(
          {a.view(), b.view(), rate.view(), bias.view(), decay.view(), strength.view()},
          device_.stream);
      std::vector<float> decays, strengths;
      const auto as = a.values(), bs = b.values(), rates = rate.values(), biases = bias.values();
      for (int64_t i = 0; i < rows * heads; ++i) {
        const double x = double{as[i]} + biases[i % heads];
        decays.push_back(static_cast<float>(rates[i % heads] * std::log1p(std::exp(x))));
        strengths.push_back(static_cast<float>(1 / (1 + std::exp(-double{bs[i]}))));
      }
      // The sum a + bias is rounded, and a softplus or a sigmoid moves by as much, relative to it,
      // where they are small: 40 · 2⁻²⁴ and a few roundings more.
      EXPECT_TRUE(all_close(decay.values(), decays, 1e-30, 4e-6)) << rows << " × " << heads;
      EXPECT_TRUE(all_close(strength.values(), strengths, 1e-30, 4e-6)) << rows << " × " << heads;
      EXPECT_TRUE(decay.gaps_intact() && strength.gaps_intact());
      Tensor last = Tensor::filled({rows, 1}, 0), same = last;
      const auto end = [&](Tensor& of) { return of.view().slice_columns(heads - 1, 1); };
      device_.backend->recurrence_gates(
          {end(a), end(b), rate.view().slice_rows(heads - 1, 1),
           bias.view().slice_rows(heads - 1, 1), last.view(), same.view()},
          device_.stream);
      for (int64_t row = 0; row < rows; ++row) {
        EXPECT_EQ(last.values()[row], decay.values()[(row + 1) * heads - 1]);
        EXPECT_EQ(same.values()[row], strength.values()[(row + 1) * heads - 1]);
      }
    }
}

TEST_P(RecurrenceGates, RefuseLimitsWithoutASpan) {
  Tensor a = Tensor::filled({2, 3}, 1), of_heads = Tensor::filled({3}, 1), out = a, other = a;
  EXPECT_THROW(device_.backend->recurrence_gates(
                   {a.view(), {}, of_heads.view(), of_heads.view(), out.view(), other.view(), 2, 1},
                   device_.stream),
               InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
