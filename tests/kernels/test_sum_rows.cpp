// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;
using kernels::CombineRows;

PECIA_OP_TEST(SumRows);

TEST_P(SumRows, CopiesRowsOfAnyType) {
  Tensor x({3, 2}, dtype_, {1, -2, 3, 4, 0.5f, -0.25f});
  Tensor out = Tensor::filled({4, 2}, 9, 1);
  if (dtype_ != DType::fp32) out = Tensor({4, 2}, dtype_, {9, 9, 9, 9, 9, 9, 9, 9});
  const std::vector<int32_t> which = {2, 0, -1, 2};
  device_.backend->sum_rows({x.view(), which, out.view()}, device_.stream);
  EXPECT_EQ(out.values(), (std::vector<float>{0.5f, -0.25f, 1, -2, 0, 0, 0.5f, -0.25f}));
  EXPECT_TRUE(out.gaps_intact());
}

class SumsOfRows : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, SumsOfRows, testing::ValuesIn(every_device()), name_of_device);

TEST_P(SumsOfRows, AreInTheOrderGivenAndLeaveOutNegativeNumbers) {
  // In fp32, 2²⁴ + 1 − 2²⁴ is 0, and 2²⁴ − 2²⁴ + 1 is 1. The reference, which sums wider, has 1.
  Tensor x({3, 1}, DType::fp32, {0x1p24f, 1, -0x1p24f});
  Tensor out = Tensor::filled({3, 1}, 9);
  const std::vector<int32_t> which = {0, 1, 2, /**/ 0, 2, 1, /**/ -1, 1, -1};
  device_.backend->sum_rows({x.view(), which, out.view()}, device_.stream);
  const float rounded = GetParam() == "reference" ? 1 : 0;
  EXPECT_EQ(out.values(), (std::vector<float>{rounded, 1, 1}));
}

TEST_P(SumsOfRows, AreAddedToWhatIsThere) {
  Tensor x({2, 2}, DType::fp32, {1, 2, 30, 40});
  Tensor out = Tensor::filled({3, 2}, 100, 3);
  const std::vector<int32_t> which = {0, 1, /**/ -1, 0, /**/ -1, -1};
  device_.backend->sum_rows({x.view(), which, out.view(), Accumulate::yes}, device_.stream);
  EXPECT_EQ(out.values(), (std::vector<float>{131, 142, 101, 102, 100, 100}));
  EXPECT_TRUE(out.gaps_intact());
}

TEST_P(SumsOfRows, MayBeTheLargestNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor x({3, 4}, DType::fp32, {1, 2, nan, -1, 3, 1, 5, -2, 9, 9, 9, 9});
  Tensor out = Tensor::filled({2, 4}, 100, 3);
  const std::vector<int32_t> which = {0, 1, /**/ -1, 0};
  device_.backend->sum_rows({x.view(), which, out.view(), Accumulate::no, CombineRows::largest},
                            device_.stream);
  EXPECT_EQ(out.values(), (std::vector<float>{3, 2, 5, 0, 1, 2, 0, 0}));
  EXPECT_TRUE(out.gaps_intact());
  EXPECT_THROW(
      device_.backend->sum_rows(
          {x.view(), which, out.view(), Accumulate::yes, CombineRows::largest}, device_.stream),
      InvalidArgument);
}

TEST_P(SumsOfRows, AgreeWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t width : {1, 33, 256, 700})
    for (const int64_t rows : {0, 1, 70})
      for (const int64_t terms : {1, 4}) {
        // Gaps of 4: four elements at a time, where the width is a multiple of 4.
        Tensor x = Tensor::random({90, width}, DType::fp32, 1, terms == 1 ? 2 : 4);
        std::vector<int32_t> which;
        for (int64_t i = 0; i < rows * terms; ++i)
          which.push_back(i % 5 == 3 ? -1 : static_cast<int32_t>(i * i % 90));
        Tensor expected = Tensor::filled({rows, width}, 0), out = Tensor::filled({rows, width}, 7);
        oracle.backend->sum_rows({x.view(), which, expected.view()}, oracle.stream);
        device_.backend->sum_rows({x.view(), which, out.view()}, device_.stream);
        EXPECT_TRUE(all_close(out.values(), expected.values(), 4 * sum_tolerance(terms), 0))
            << rows << " × " << width << " of " << terms;
      }
}

TEST_P(SumsOfRows, RefuseRowsThatAreNotThereAndTypesThatCannotBeSummed) {
  Tensor x({2, 1}, DType::fp32, {1, 2}), narrow({2, 1}, DType::bf16, {1, 2});
  Tensor out = Tensor::filled({1, 1}, 0), narrow_out({1, 1}, DType::bf16, {0});
  const std::vector<int32_t> beyond = {2}, both = {0, 1}, none;
  const auto run = [&](const TensorView& from, std::span<const int32_t> which,
                       const TensorView& to) {
    device_.backend->sum_rows({from, which, to}, device_.stream);
  };
  EXPECT_THROW(run(x.view(), beyond, out.view()), InvalidArgument);
  EXPECT_THROW(run(x.view(), none, out.view()), InvalidArgument);
  EXPECT_THROW(run(narrow.view(), both, narrow_out.view()), InvalidArgument);
  EXPECT_THROW(run(narrow.view(), std::span(both).first(1), out.view()), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
