// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::PickedRows;

TensorView list_of(const std::vector<int32_t>& rows) {
  return {rows.data(), DType::int32, {std::ssize(rows)}};
}

PECIA_OP_TEST_OF(PickRows, kv_types);

TEST_P(PickRows, CopiesRowsOfAnyType) {
  Tensor x({3, 2}, dtype_, {1, -2, 3, 4, 0.5f, -0.25f}, 1);
  Tensor listed = Tensor::filled({4, 2}, 9, 3), in_order = Tensor::filled({2, 2}, 9);
  if (dtype_ != DType::fp32) {
    listed = Tensor({4, 2}, dtype_, std::vector<float>(8, 9), 3);
    in_order = Tensor({2, 2}, dtype_, std::vector<float>(4, 9));
  }
  const std::vector<int32_t> rows = {2, 0, 0, 1};
  const std::vector<PickedRows> picks = {{x.view(), list_of(rows), listed.view()},
                                         {x.view(), {}, in_order.view()}};
  device_.backend->pick_rows({picks}, device_.stream);
  EXPECT_EQ(listed.values(), (std::vector<float>{0.5f, -0.25f, 1, -2, 1, -2, 3, 4}));
  EXPECT_EQ(in_order.values(), (std::vector<float>{1, -2, 3, 4}));
  EXPECT_TRUE(listed.gaps_intact());
}

/// Widths that are multiples of 16 bytes, of 4, and of neither, and many rows.
TEST_P(PickRows, AgreesWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t width : {1, 3, 20, 64, 700})
    for (const int64_t gap : {0, 1, 4, 16}) {
      Tensor x = Tensor::random({90, width}, dtype_, 1, gap);
      std::vector<int32_t> rows;
      for (int64_t i = 0; i < 350; ++i) rows.push_back(static_cast<int32_t>(i * i % 90));
      const std::vector<float> zeros(350 * width);
      Tensor expected({350, width}, dtype_, zeros), out({350, width}, dtype_, zeros, gap);
      const std::vector<PickedRows> wanted = {{x.view(), list_of(rows), expected.view()}},
                                    picks = {{x.view(), list_of(rows), out.view()}};
      oracle.backend->pick_rows({wanted}, oracle.stream);
      device_.backend->pick_rows({picks}, device_.stream);
      EXPECT_EQ(out.values(), expected.values()) << width << ", " << gap;
      EXPECT_TRUE(out.gaps_intact());
    }
}

class CastRows : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, CastRows, testing::ValuesIn(every_device()), name_of_device);

TEST_P(CastRows, AsCastDoes) {
  for (const int64_t width : {1, 8, 37})
    for (const auto& [from, to] :
         {std::pair(DType::fp32, DType::bf16), {DType::bf16, DType::fp32}}) {
      Tensor x = Tensor::random({5, width}, from, 3, width == 8 ? 4 : 1);
      const std::vector<float> zeros(5 * width);
      Tensor expected({5, width}, to, zeros), out({3, width}, to, std::vector<float>(3 * width));
      device_.backend->cast({x.view(), expected.view()}, device_.stream);
      const std::vector<int32_t> rows = {4, 0, 2};
      const std::vector<PickedRows> picks = {{x.view(), list_of(rows), out.view()}};
      device_.backend->pick_rows({picks}, device_.stream);
      const std::vector<float> all = expected.values();
      std::vector<float> wanted;
      for (const int32_t row : rows)
        wanted.insert(wanted.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
      EXPECT_EQ(out.values(), wanted) << width;
    }
}

TEST_P(CastRows, RefusesWhatDoesNotFit) {
  Tensor x = Tensor::random({5, 4}, DType::fp32, 1), out = Tensor::filled({2, 4}, 0),
         narrow = Tensor::filled({2, 3}, 0);
  Tensor halves({2, 4}, DType::fp16, std::vector<float>(8));
  const std::vector<int32_t> one = {1};
  for (const PickedRows& picked : {PickedRows{x.view(), list_of(one), out.view()},
                                   {x.view(), {}, narrow.view()},
                                   {x.view(), {}, halves.view()},
                                   {out.view(), {}, x.view()}}) {
    const std::vector<PickedRows> picks = {picked};
    EXPECT_THROW(device_.backend->pick_rows({picks}, device_.stream), InvalidArgument);
  }
  device_.backend->pick_rows({}, device_.stream);
}

}  // namespace
}  // namespace pecia::test
