// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/same_bits.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::CausalConvArgs;
using kernels::StateRows;

class CausalConv : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, CausalConv, testing::ValuesIn(every_device()), name_of_device);

double silu(double x) {
  return x / (1 + std::exp(-x));
}

/// Tensors of a call, between whose rows are numbers that belong to nobody.
struct Convolved {
  Convolved(int64_t of_rows, int64_t of_channels, int64_t with_taps, int64_t of_tails)
      : rows(of_rows),
        channels(of_channels),
        taps(with_taps),
        x(Tensor::random({rows, channels}, DType::fp32, 1, 3)),
        weight(Tensor::random({channels, taps}, DType::fp32, 2)),
        bias(Tensor::random({channels}, DType::fp32, 3)),
        tails(Tensor::random({of_tails * (taps - 1), channels}, DType::fp32, 4, 5)),
        out(Tensor::filled({rows, channels}, 0, 1)) {}

  CausalConvArgs args(std::span<const StateRows> items, bool with_bias = true) {
    return {.x = x.view(),
            .weight = weight.view(),
            .bias = with_bias ? bias.view() : TensorView(),
            .items = items,
            .tails = tails.view(),
            .out = out.view()};
  }

  int64_t rows, channels, taps;
  Tensor x, weight, bias, tails, out;
};

struct Expected {
  std::vector<float> out, tails;
};

/// The header's formula on copies of what `of` has now.
Expected convolved(const Convolved& of, std::span<const StateRows> items, bool with_bias) {
  const std::vector<float> x = of.x.values(), weight = of.weight.values(), bias = of.bias.values();
  const int64_t kept = of.taps - 1;
  Expected expected{of.out.values(), of.tails.values()};
  for (const StateRows& item : items)
    for (int64_t c = 0; c < of.channels; ++c) {
      std::vector<double> seen;
      for (int64_t j = 0; j < kept; ++j)
        seen.push_back(expected.tails[(item.state * kept + j) * of.channels + c]);
      for (int64_t t = 0; t < item.num_rows; ++t)
        seen.push_back(x[(item.first_row + t) * of.channels + c]);
      for (int64_t t = 0; t < item.num_rows; ++t) {
        double sum = with_bias ? bias[c] : 0;
        for (int64_t j = 0; j < of.taps; ++j) sum += weight[c * of.taps + j] * seen[t + j];
        expected.out[(item.first_row + t) * of.channels + c] = static_cast<float>(silu(sum));
      }
      for (int64_t j = 0; j < kept; ++j)
        expected.tails[(item.state * kept + j) * of.channels + c] =
            static_cast<float>(seen[item.num_rows + j]);
    }
  return expected;
}

/// Two channels, of which the second ends a row, with weights 2 and 1 for the last row and this one.
TEST_P(CausalConv, SeesTheRowsBeforeInTheTail) {
  Tensor x({2, 2}, DType::fp32, {1, -1, 3, -2}), weight({2, 2}, DType::fp32, {2, 1, 0.5f, 1});
  Tensor bias({2}, DType::fp32, {0.5f, 0}), tails({2, 2}, DType::fp32, {7, 7, 10, 4});
  Tensor out = Tensor::filled({2, 2}, 0);
  const std::vector<StateRows> items{{0, 2, 1}};
  device_.backend->causal_conv(
      {x.view(), weight.view(), bias.view(), items, tails.view(), out.view()}, device_.stream);
  const std::vector<double> sums{21.5, 1, 5.5, -2.5};
  std::vector<float> expected;
  for (const double sum : sums) expected.push_back(static_cast<float>(silu(sum)));
  EXPECT_TRUE(all_close(out.values(), expected, 0, 1e-6));
  EXPECT_EQ(tails.values(), (std::vector<float>{7, 7, 3, -2}));
}

TEST_P(CausalConv, OfRaggedItems) {
  for (const int64_t taps : {2, 3, 4, 8})
    for (const int64_t channels : {1, 4, 7, 16, 33, 260}) {
      Convolved of(60, channels, taps, 7);
      // One without rows, some shorter than a tail, and one of more rows than a block has.
      const std::vector<StateRows> items{
          {40, 1, 6}, {0, 37, 2}, {37, 0, 1}, {41, 2, 0}, {44, 9, 3}};
      for (const bool with_bias : {true, false}) {
        const Expected expected = convolved(of, items, with_bias);
        device_.backend->causal_conv(of.args(items, with_bias), device_.stream);
        // silu grows by at most 1.1 times what its sum does.
        EXPECT_TRUE(all_close(of.out.values(), expected.out, 1.1 * sum_tolerance(taps), 1e-6))
            << taps << " taps of " << channels;
        EXPECT_EQ(of.tails.values(), expected.tails) << taps << " taps of " << channels;
        EXPECT_TRUE(of.out.gaps_intact() && of.tails.gaps_intact());
      }
    }
}

TEST_P(CausalConv, HasTheSameBitsInPassesOfAnyLength) {
  const std::vector<StateRows> all{{0, 70, 1}, {70, 5, 0}};
  Convolved whole(75, 21, 4, 2);
  device_.backend->causal_conv(whole.args(all), device_.stream);
  for (const int64_t length : {1, 2, 3, 33}) {
    Convolved pieces(75, 21, 4, 2);
    for (const StateRows& item : all)
      for (int64_t done = 0; done < item.num_rows; done += length) {
        const std::vector<StateRows> piece{
            {item.first_row + done, std::min(length, item.num_rows - done), item.state}};
        device_.backend->causal_conv(pieces.args(piece), device_.stream);
      }
    EXPECT_TRUE(same_bits(pieces.out, whole.out)) << length;
    EXPECT_TRUE(same_bits(pieces.tails, whole.tails)) << length;
  }
}

TEST_P(CausalConv, TakesColumnsOfWiderTensors) {
  const std::vector<StateRows> items{{0, 6, 0}};
  Convolved wide(6, 40, 4, 1), alone(6, 40, 4, 1);
  device_.backend->causal_conv(alone.args(items), device_.stream);
  CausalConvArgs args = wide.args(items);
  for (TensorView* view : {&args.x, &args.tails, &args.out}) *view = view->slice_columns(16, 9);
  args.weight = args.weight.slice_rows(16, 9), args.bias = args.bias.slice_rows(16, 9);
  device_.backend->causal_conv(args, device_.stream);
  const auto wide_out = wide.out.values(), out = alone.out.values();
  const auto wide_tails = wide.tails.values(), tails = alone.tails.values();
  const auto before = Convolved(6, 40, 4, 1).tails.values();
  for (int64_t i = 0; i < 6 * 40; ++i) {
    const bool inside = i % 40 >= 16 && i % 40 < 25;
    EXPECT_EQ(wide_out[i], inside ? out[i] : 0) << i;
  }
  for (int64_t i = 0; i < 3 * 40; ++i) {
    const bool inside = i % 40 >= 16 && i % 40 < 25;
    EXPECT_EQ(wide_tails[i], inside ? tails[i] : before[i]) << i;
  }
}

TEST_P(CausalConv, KeepsNaNInItsSequenceAndChannel) {
  Convolved of(12, 9, 4, 2);
  std::vector<float> values = of.x.values();
  values[5 * 9 + 3] = std::numeric_limits<float>::quiet_NaN();  // row 5, of the first item
  of.x = Tensor({12, 9}, DType::fp32, values);
  const std::vector<StateRows> items{{0, 7, 0}, {7, 5, 1}};
  device_.backend->causal_conv(of.args(items), device_.stream);
  const auto out = of.out.values(), tails = of.tails.values();
  for (int64_t i = 0; i < 12 * 9; ++i) {
    const int64_t row = i / 9;
    EXPECT_EQ(std::isnan(out[i]), i % 9 == 3 && (row == 5 || row == 6)) << i;
  }
  for (int64_t i = 0; i < 6 * 9; ++i) EXPECT_EQ(std::isnan(tails[i]), i == 9 + 3) << i;
}

TEST_P(CausalConv, OfNoRowsDoesNothing) {
  Convolved of(0, 5, 4, 2);
  const std::vector<float> before = of.tails.values();
  const std::vector<StateRows> items{{0, 0, 1}};
  device_.backend->causal_conv(of.args(items), device_.stream);
  device_.backend->causal_conv(of.args({}), device_.stream);
  EXPECT_EQ(of.tails.values(), before);
}

TEST_P(CausalConv, RefusesWhatContradictsItsHeader) {
  const auto refused = [&](Convolved of, const StateRows& item) {
    const std::vector<StateRows> items{item};
    EXPECT_THROW(device_.backend->causal_conv(of.args(items), device_.stream), InvalidArgument);
  };
  refused(Convolved(4, 5, 1, 0), {0, 4, 0});
  refused(Convolved(4, 5, 9, 1), {0, 4, 0});
  refused(Convolved(4, 5, 4, 1), {0, 4, 1});
  refused(Convolved(4, 5, 4, 1), {1, 4, 0});
}

}  // namespace
}  // namespace pecia::test
