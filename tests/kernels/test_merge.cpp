// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::empty_lse;

class Merge : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Merge, testing::ValuesIn(every_device()), name_of_device);

TEST_P(Merge, WeighsPartsByTheirExponentials) {
  // One head of two elements: weights 1 : 3, then a part that is e^100 times as heavy.
  Tensor out({2, 1, 2}, DType::fp32, {4, 8, 1, 1}), lse({2, 1}, DType::fp32, {0, -50});
  Tensor part_out({2, 1, 2}, DType::fp32, {0, 4, 5, 6});
  Tensor part_lse({2, 1}, DType::fp32, {std::log(3.0f), 50});
  device_.backend->merge({part_out.view(), part_lse.view(), {}, out.view(), lse.view()},
                         device_.stream);
  EXPECT_TRUE(all_close(out.values(), std::vector<float>{1, 5, 5, 6}, 1e-6));
  EXPECT_TRUE(all_close(lse.values(), std::vector<float>{std::log(4.0f), 50}, 1e-6));
}

TEST_P(Merge, EmptyPartsChangeNothing) {
  Tensor out({3, 1, 1}, DType::fp32, {2, 0, 0});
  Tensor lse({3, 1}, DType::fp32, {1, empty_lse, empty_lse});
  Tensor part_out({3, 1, 1}, DType::fp32, {0, 3, 0});
  Tensor part_lse({3, 1}, DType::fp32, {empty_lse, -2, empty_lse});
  device_.backend->merge({part_out.view(), part_lse.view(), {}, out.view(), lse.view()},
                         device_.stream);
  EXPECT_EQ(out.values(), (std::vector<float>{2, 3, 0}));
  EXPECT_EQ(lse.values(), (std::vector<float>{1, -2, empty_lse}));
}

TEST_P(Merge, WithNothingKeepsTheSignOfZero) {
  Tensor out({2, 1, 2}, DType::fp32, {0, 0, -0.0f, 0}), lse({2, 1}, DType::fp32, {empty_lse, 3});
  Tensor part_out({2, 1, 2}, DType::fp32, {-0.0f, 0, 0, 0});
  Tensor part_lse({2, 1}, DType::fp32, {1, empty_lse});
  device_.backend->merge({part_out.view(), part_lse.view(), {}, out.view(), lse.view()},
                         device_.stream);
  const std::vector<float> found = out.values();
  EXPECT_TRUE(std::signbit(found[0]) && std::signbit(found[2]));
  EXPECT_FALSE(std::signbit(found[1]) || std::signbit(found[3]));
}

TEST_P(Merge, GoesToTheRowsNamed) {
  Tensor out({3, 1, 1}, DType::fp32, {1, 2, 3}), lse = Tensor::filled({3, 1}, 0);
  Tensor part_out({2, 1, 1}, DType::fp32, {5, 7}), part_lse = Tensor::filled({2, 1}, 0);
  const std::vector<int64_t> rows = {2, 0};
  device_.backend->merge({part_out.view(), part_lse.view(), rows, out.view(), lse.view()},
                         device_.stream);
  EXPECT_TRUE(all_close(out.values(), std::vector<float>{4, 2, 4}, 1e-6));
}

TEST_P(Merge, DoesNotDependOnTheOrderOfParts) {
  const int64_t rows = 65, heads = 3, head_dim = 20, num_parts = 4;
  std::vector<Tensor> outs, lses;
  for (int64_t p = 0; p < num_parts; ++p) {
    outs.push_back(Tensor::random({rows, heads, head_dim}, DType::fp32, 10 + p));
    std::vector<float> lse = random_floats(rows * heads, 20 + p, 30.0f);
    std::vector<float> out = outs.back().values();
    for (int64_t i = p; i < rows * heads; i += 3) {  // every third row and head is empty
      lse[i] = empty_lse;
      std::fill_n(out.begin() + i * head_dim, head_dim, 0.0f);
    }
    outs.back() = Tensor({rows, heads, head_dim}, DType::fp32, out);
    lses.push_back(Tensor({rows, heads}, DType::fp32, lse));
  }
  std::vector<int> order = {0, 1, 2, 3};
  std::vector<float> first_out, first_lse;
  do {
    Tensor out = Tensor::filled({rows, heads, head_dim}, 0);
    Tensor lse = Tensor::filled({rows, heads}, empty_lse);
    for (const int p : order)
      device_.backend->merge({outs[p].view(), lses[p].view(), {}, out.view(), lse.view()},
                             device_.stream);
    if (first_out.empty()) first_out = out.values(), first_lse = lse.values();
    EXPECT_TRUE(all_close(out.values(), first_out, 2e-6));
    EXPECT_TRUE(all_close(lse.values(), first_lse, 1e-5, 3e-7));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(Merge, AgreesWithTheReference) {
  Device oracle = make_device("reference");
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int64_t head_dim : {1, 8, 17, 64, 80, 128})
      for (const int64_t rows : {0, 1, 90}) {
        Tensor part_out = Tensor::random({rows, 2, head_dim}, dtype, 1);
        Tensor part_lse = Tensor::random({rows, 2}, DType::fp32, 2);
        Tensor out = Tensor::random({rows, 2, head_dim}, DType::fp32, 3);
        Tensor lse = Tensor::random({rows, 2}, DType::fp32, 4);
        Tensor expected_out = out, expected_lse = lse;
        device_.backend->merge({part_out.view(), part_lse.view(), {}, out.view(), lse.view()},
                               device_.stream);
        oracle.backend->merge(
            {part_out.view(), part_lse.view(), {}, expected_out.view(), expected_lse.view()},
            oracle.stream);
        EXPECT_TRUE(all_close(out.values(), expected_out.values(), 1e-6))
            << name_of(dtype) << ", head_dim " << head_dim;
        EXPECT_TRUE(all_close(lse.values(), expected_lse.values(), 1e-6));
      }
}

TEST_P(Merge, BringsPartsOfBf16ToEmptyRows) {
  Tensor part_out = Tensor::random({7, 3, 20}, DType::bf16, 1);
  Tensor part_lse = Tensor::random({7, 3}, DType::fp32, 2);
  Tensor out = Tensor::filled({7, 3, 20}, 0), lse = Tensor::filled({7, 3}, empty_lse);
  device_.backend->merge({part_out.view(), part_lse.view(), {}, out.view(), lse.view()},
                         device_.stream);
  EXPECT_EQ(out.values(), part_out.values());
  EXPECT_EQ(lse.values(), part_lse.values());
}

/// From equal parts to parts of which one weighs nothing.
TEST_P(Merge, TakesTheLogarithmOfAnyShare) {
  const int64_t rows = 200;
  std::vector<float> of_rows(rows), of_parts(rows), expected(rows);
  for (int64_t r = 0; r < rows; ++r) {
    of_rows[r] = r % 2 == 0 ? 0.0f : 0.5f * static_cast<float>(r);
    of_parts[r] = r % 2 == 0 ? 0.5f * static_cast<float>(r) : 0.0f;
    expected[r] = static_cast<float>(std::log1p(std::exp(-0.5 * static_cast<double>(r))) +
                                     0.5 * static_cast<double>(r));
  }
  Tensor out = Tensor::filled({rows, 1, 1}, 0), part_out = Tensor::filled({rows, 1, 1}, 0);
  Tensor lse({rows, 1}, DType::fp32, of_rows), part_lse({rows, 1}, DType::fp32, of_parts);
  device_.backend->merge({part_out.view(), part_lse.view(), {}, out.view(), lse.view()},
                         device_.stream);
  EXPECT_TRUE(all_close(lse.values(), expected, 0x1p-22, 0x1p-22));
}

TEST_P(Merge, OfAHeadDoesNotDependOnTheHeadsBesideIt) {
  const int64_t heads = 37, head_dim = 24;
  Tensor part_out = Tensor::random({heads, 1, head_dim}, DType::fp32, 1);
  Tensor part_lse = Tensor::random({heads, 1}, DType::fp32, 2);
  const Tensor out = Tensor::random({heads, 1, head_dim}, DType::fp32, 3);
  const Tensor lse = Tensor::random({heads, 1}, DType::fp32, 4);
  Tensor together = out, lse_together = lse, alone = out, lse_alone = lse;
  device_.backend->merge({part_out.view().reshape({1, heads, head_dim}),
                          part_lse.view().reshape({1, heads}),
                          {},
                          together.view().reshape({1, heads, head_dim}),
                          lse_together.view().reshape({1, heads})},
                         device_.stream);
  for (int64_t h = 0; h < heads; ++h)
    device_.backend->merge({part_out.view().slice_rows(h, 1),
                            part_lse.view().slice_rows(h, 1),
                            {},
                            alone.view().slice_rows(h, 1),
                            lse_alone.view().slice_rows(h, 1)},
                           device_.stream);
  EXPECT_EQ(together.values(), alone.values());
  EXPECT_EQ(lse_together.values(), lse_alone.values());
}

TEST_P(Merge, RefusesRowsOutside) {
  Tensor out = Tensor::filled({1, 1, 1}, 1), lse = Tensor::filled({1, 1}, 0);
  const std::vector<int64_t> rows = {1};
  EXPECT_THROW(device_.backend->merge({out.view(), lse.view(), rows, out.view(), lse.view()},
                                      device_.stream),
               InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
