// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

class GatedActivation : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, GatedActivation, testing::ValuesIn(every_device()),
                         name_of_device);

TEST_P(GatedActivation, IsSiluOfTheGateTimesUp) {
  std::vector<float> gates = {0, 1, -1, 20, -20, 90, -90, -105, -1e30f, 1e30f},
                     expected = {0, 1.4621172f, -0.53788286f, 40, -8.2446145e-08f, 180, 0,
                                 0, 0,          2e30f};
  for (int copy = 0; copy < 2; ++copy) {  // twenty: in vectors and in the rest
    gates.insert(gates.end(), gates.begin(), gates.begin() + 5);
    expected.insert(expected.end(), expected.begin(), expected.begin() + 5);
  }
  const auto width = static_cast<int64_t>(gates.size());
  Tensor gate({1, width}, DType::fp32, gates), up = Tensor::filled({1, width}, 2);
  device_.backend->gated_activation({gate.view(), up.view(), gate.view()}, device_.stream);
  EXPECT_TRUE(all_close(gate.values(), expected, 1e-35, 5e-7));
}

TEST_P(GatedActivation, IsGeluByTanhOfTheGateTimesUp) {
  // ½ g (1 + tanh(√(2/π) (g + 0.044715 g³))) in double.
  std::vector<float> gates = {0, 1, -1, 3, -3, 20, -20, 1e10f, -1e10f, 0.1f};
  std::vector<float> expected = {0,  1.68238387f, -0.31761613f, 5.99272522f, -0.00727478416f,
                                 40, 0,           2e10f,        0,           0.107965502f};
  Tensor gate({1, 10}, DType::fp32, gates), up = Tensor::filled({1, 10}, 2);
  device_.backend->gated_activation(
      {gate.view(), up.view(), gate.view(), kernels::Activation::gelu_tanh}, device_.stream);
  EXPECT_TRUE(all_close(gate.values(), expected, 1e-8, 2e-6));
}

TEST_P(GatedActivation, ClampedIsSigmoidOfTheGateTimesBothWithinLimits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor gate({1, 8}, DType::fp32, {1, 1, -1, 9, 7, -50, 2, nan});
  Tensor up({1, 8}, DType::fp32, {2, -1, 2, 8, -9, 100, nan, 0});
  device_.backend->gated_activation(
      {gate.view(), up.view(), gate.view(), kernels::Activation::clamped}, device_.stream);
  // g / (1 + exp(−1.702 g)) · (u + 1) in double, with g ≤ 7 and −7 ≤ u ≤ 7.
  const std::vector<float> found = gate.values();
  EXPECT_TRUE(all_close(
      std::span(found).first(6),
      std::vector<float>{2.5373873f, 0, -0.4626127f, 55.9996254f, -41.9997191f, 0}, 1e-30, 2e-6));
  EXPECT_TRUE(std::isnan(found[6]) && std::isnan(found[7]));
}

TEST_P(GatedActivation, SigmoidOfTheGateMultipliesUp) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor gate({1, 6}, DType::fp32, {0, 2, -2, 200, -200, nan});
  Tensor up({1, 6}, DType::fp32, {4, 1, -1, -3, 5, 1});
  device_.backend->gated_activation(
      {gate.view(), up.view(), up.view(), kernels::Activation::sigmoid}, device_.stream);
  const std::vector<float> found = up.values();
  EXPECT_TRUE(all_close(std::span(found).first(5),
                        std::vector<float>{2, 0.88079708f, -0.11920292f, -3, 0}, 1e-30, 2e-6));
  EXPECT_TRUE(std::isnan(found[5]));
}

/// One column at a time, or several.
TEST_P(GatedActivation, OfAWholeRowIsTheSameForAllColumns) {
  constexpr int64_t rows = 3;
  for (const int64_t columns : {37, 40}) {
    Tensor gate({rows, 1}, DType::fp32, {-1, 0, 2.5f});
    Tensor up = Tensor::random({rows, columns}, DType::fp32, 4);
    const std::vector<float> before = up.values();
    const kernels::GatedActivationArgs args{gate.view(), up.view(), up.view(),
                                            kernels::Activation::sigmoid};
    device_.backend->gated_activation(args, device_.stream);
    std::vector<float> expected;
    for (int64_t i = 0; i < rows * columns; ++i)
      expected.push_back(before[i] / (1 + std::exp(-gate.values()[i / columns])));
    EXPECT_TRUE(all_close(up.values(), expected, 0, 1e-6));
    Tensor two({rows, 2}, DType::fp32, {1, 2, 3, 4, 5, 6});
    EXPECT_THROW(
        device_.backend->gated_activation(
            {two.view(), up.view(), up.view(), kernels::Activation::sigmoid}, device_.stream),
        InvalidArgument);
  }
}

/// As feed-forwards without a gate have it.
TEST_P(GatedActivation, OfReluSquaresWhatIsAboveZero) {
  Tensor up({1, 6}, DType::fp32, {2, 0.5f, 0, -0.5f, -3, NAN});
  device_.backend->gated_activation({up.view(), up.view(), up.view(), kernels::Activation::relu},
                                    device_.stream);
  const std::vector<float> found = up.values();
  EXPECT_TRUE(all_close(std::span(found).first(5), std::vector<float>{4, 0.25f, 0, 0, 0}, 0, 0));
  EXPECT_TRUE(std::isnan(found[5]));
}

TEST_P(GatedActivation, OthersAgreeWithTheReference) {
  Device oracle = make_device("reference");
  using kernels::Activation;
  for (const Activation& activation :
       {Activation::gelu_tanh, Activation::clamped,
        Activation{Activation::Kind::clamped, 1.25f, 0.5f}, Activation::sigmoid, Activation::relu})
    for (const int64_t width : {1, 7, 17, 600}) {
      Tensor gate = Tensor::random({9, width}, DType::fp32, 1), out = gate;
      Tensor up = Tensor::random({9, width}, DType::fp32, 2);
      Tensor expected = Tensor::filled({9, width}, 0);
      oracle.backend->gated_activation({gate.view(), up.view(), expected.view(), activation},
                                       oracle.stream);
      device_.backend->gated_activation({gate.view(), up.view(), out.view(), activation},
                                        device_.stream);
      EXPECT_TRUE(all_close(out.values(), expected.values(), 1e-7, 2e-6)) << width;
    }
}

TEST_P(GatedActivation, AgreesWithTheReferenceWhereverItWrites) {
  Device oracle = make_device("reference");
  for (const int64_t width : {1, 7, 8, 16, 17, 31, 1536})
    for (const int64_t rows : {0, 1, 40})
      for (const int where : {0, 1, 2}) {
        Tensor gate = Tensor::random({rows, width}, DType::fp32, 1, 3);
        Tensor up = Tensor::random({rows, width}, DType::fp32, 2, 1);
        Tensor other = Tensor::filled({rows, width}, 0), expected = other;
        oracle.backend->gated_activation({gate.view(), up.view(), expected.view()}, oracle.stream);
        Tensor& out = where == 0 ? gate : where == 1 ? up : other;
        device_.backend->gated_activation({gate.view(), up.view(), out.view()}, device_.stream);
        EXPECT_TRUE(all_close(out.values(), expected.values(), 1e-12, 5e-7))
            << rows << " × " << width;
        EXPECT_TRUE(out.gaps_intact());
      }
}

/// As ranks need that have some of the columns each.
TEST_P(GatedActivation, OfAColumnDoesNotDependOnWhereItStands) {
  constexpr int64_t width = 43;
  Tensor gate = Tensor::random({3, width}, DType::fp32, 1);
  Tensor up = Tensor::random({3, width}, DType::fp32, 2), out = Tensor::filled({3, width}, 0);
  device_.backend->gated_activation({gate.view(), up.view(), out.view()}, device_.stream);
  const auto whole = out.values();
  for (int64_t count = 1; count < width; ++count) {
    Tensor some = Tensor::filled({3, count}, 0);
    const int64_t first = width - count;
    device_.backend->gated_activation({gate.view().slice_columns(first, count),
                                       up.view().slice_columns(first, count), some.view()},
                                      device_.stream);
    const auto part = some.values();
    for (int64_t i = 0; i < 3 * count; ++i)
      ASSERT_EQ(part[i], whole[i / count * width + first + i % count])
          << count << " columns, " << i;
  }
}

TEST_P(GatedActivation, IsRoundedOnceToTheOperandsType) {
  for (const DType stored : stored_types)
    for (const int64_t width : {7, 64, 1000}) {
      const DType narrow = device_.backend->operand_type(stored);
      Tensor gate = Tensor::random({5, width}, DType::fp32, 1);
      Tensor up = Tensor::random({5, width}, DType::fp32, 2);
      Tensor wide = Tensor::filled({5, width}, 0);
      Tensor operand({5, width}, narrow, wide.values(), 8);
      device_.backend->gated_activation({gate.view(), up.view(), wide.view()}, device_.stream);
      device_.backend->gated_activation({gate.view(), up.view(), operand.view()}, device_.stream);
      EXPECT_EQ(operand.values(), Tensor({5, width}, narrow, wide.values()).values()) << width;
      EXPECT_TRUE(operand.gaps_intact());
    }
}

/// As of the same numbers in fp32.
TEST_P(GatedActivation, ReadsRoundedProducts) {
  for (const auto activation : {kernels::Activation::silu, kernels::Activation::gelu_tanh,
                                kernels::Activation::clamped, kernels::Activation::sigmoid})
    for (const int64_t width : {7, 64, 1001})
      for (const int64_t gap : {0, 3, 8}) {
        SCOPED_TRACE(testing::Message() << width << " columns, gap " << gap);
        Tensor gate = Tensor::random({5, width}, DType::bf16, 1, gap);
        Tensor up = Tensor::random({5, width}, DType::bf16, 2, gap);
        Tensor out({5, width}, DType::bf16, std::vector<float>(5 * width), gap);
        const auto run = [&](Device& device, Tensor& g, Tensor& u, Tensor& to) {
          device.backend->gated_activation({g.view(), u.view(), to.view(), activation},
                                           device.stream);
        };
        if (!device_.backend->rounds_products()) {
          EXPECT_ANY_THROW(run(device_, gate, up, out));
          continue;
        }
        run(device_, gate, up, out);
        EXPECT_TRUE(out.gaps_intact());
        Tensor wide_gate({5, width}, DType::fp32, gate.values());
        Tensor wide_up({5, width}, DType::fp32, up.values());
        Tensor wide = Tensor::filled({5, width}, 0);
        run(device_, wide_gate, wide_up, wide);
        EXPECT_EQ(out.values(), Tensor({5, width}, DType::bf16, wide.values()).values());
        run(device_, gate, up, gate);
        EXPECT_EQ(gate.values(), out.values()) << "in place";
      }
}

TEST_P(GatedActivation, RefusesProductsOfTwoTypes) {
  Tensor gate = Tensor::random({2, 3}, DType::bf16, 1), out = gate, up = Tensor::filled({2, 3}, 1);
  Tensor wide = up;
  EXPECT_THROW(
      device_.backend->gated_activation({gate.view(), up.view(), out.view()}, device_.stream),
      InvalidArgument);
  EXPECT_THROW(
      device_.backend->gated_activation({gate.view(), gate.view(), wide.view()}, device_.stream),
      InvalidArgument);
}

TEST_P(GatedActivation, RefusesMismatchedShapes) {
  Tensor gate = Tensor::filled({2, 3}, 1), up = Tensor::filled({3, 2}, 1);
  EXPECT_THROW(
      device_.backend->gated_activation({gate.view(), up.view(), gate.view()}, device_.stream),
      InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
