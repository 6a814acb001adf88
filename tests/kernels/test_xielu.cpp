// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::XieluCurve;

constexpr XieluCurve curve{0.75f, 1.25f, 0.5f, -0.125f};

class Xielu : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Xielu, testing::ValuesIn(every_device()), name_of_device);

TEST_P(Xielu, IsASquareAboveZeroAndAnExponentialBelow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // ¾ x² + ½ x; 1¼ (expm1(min(x, −⅛)) − x) + ½ x, in double.
  std::vector<float> xs = {0, 2, 0.5f, -0.0625f, -0.125f, -1, -3, -200, 1e10f},
                     expected = {-0.14687887f, 4,           0.4375f, -0.10000387f, -0.05312887f,
                                 -0.04015070f, 1.06223384f, 148.75f, 7.5e19f};
  xs.push_back(nan);
  const auto first = std::vector<float>(xs.begin(), xs.begin() + 9);
  xs.insert(xs.end(), first.begin(), first.end());  // nineteen: in vectors and in the rest
  const auto width = static_cast<int64_t>(xs.size());
  Tensor x({1, width}, DType::fp32, xs);
  device_.backend->xielu({x.view(), x.view(), curve}, device_.stream);
  const std::vector<float> found = x.values();
  EXPECT_TRUE(all_close(std::span(found).first(9), expected, 3e-7, 1e-6));
  EXPECT_TRUE(std::isnan(found[9]));
  EXPECT_TRUE(all_close(std::span(found).last(9), expected, 3e-7, 1e-6));
}

TEST_P(Xielu, AgreesWithTheReferenceWhereverItWrites) {
  Device oracle = make_device("reference");
  for (const int64_t width : {1, 7, 8, 16, 17, 31, 1536})
    for (const int64_t rows : {0, 1, 40})
      for (const bool in_place : {true, false}) {
        Tensor x = Tensor::random({rows, width}, DType::fp32, 1, 3);
        Tensor other = Tensor::filled({rows, width}, 0), expected = other;
        oracle.backend->xielu({x.view(), expected.view(), curve}, oracle.stream);
        Tensor& out = in_place ? x : other;
        device_.backend->xielu({x.view(), out.view(), curve}, device_.stream);
        EXPECT_TRUE(all_close(out.values(), expected.values(), 5e-7, 1e-6))
            << rows << " × " << width;
        EXPECT_TRUE(out.gaps_intact());
      }
}

/// As ranks need that have some of the columns each.
TEST_P(Xielu, OfAColumnDoesNotDependOnWhereItStands) {
  constexpr int64_t width = 43;
  Tensor x = Tensor::random({3, width}, DType::fp32, 1), out = Tensor::filled({3, width}, 0);
  device_.backend->xielu({x.view(), out.view(), curve}, device_.stream);
  const auto whole = out.values();
  for (int64_t count = 1; count < width; ++count) {
    Tensor some = Tensor::filled({3, count}, 0);
    const int64_t first = width - count;
    device_.backend->xielu({x.view().slice_columns(first, count), some.view(), curve},
                           device_.stream);
    const auto part = some.values();
    for (int64_t i = 0; i < 3 * count; ++i)
      ASSERT_EQ(part[i], whole[i / count * width + first + i % count])
          << count << " columns, " << i;
  }
}

TEST_P(Xielu, IsRoundedOnceToTheOperandsType) {
  for (const DType stored : stored_types)
    for (const int64_t width : {7, 64, 1000}) {
      const DType narrow = device_.backend->operand_type(stored);
      Tensor x = Tensor::random({5, width}, DType::fp32, 1);
      Tensor wide = Tensor::filled({5, width}, 0);
      Tensor operand({5, width}, narrow, wide.values(), 8);
      device_.backend->xielu({x.view(), wide.view(), curve}, device_.stream);
      device_.backend->xielu({x.view(), operand.view(), curve}, device_.stream);
      EXPECT_EQ(operand.values(), Tensor({5, width}, narrow, wide.values()).values()) << width;
      EXPECT_TRUE(operand.gaps_intact());
    }
}

TEST_P(Xielu, RefusesMismatchedShapes) {
  Tensor x = Tensor::filled({2, 3}, 1), out = Tensor::filled({3, 2}, 1);
  EXPECT_THROW(device_.backend->xielu({x.view(), out.view(), curve}, device_.stream),
               InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
