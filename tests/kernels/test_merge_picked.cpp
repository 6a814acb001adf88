// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::empty_lse;
using kernels::PickedParts;

class MergePicked : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, MergePicked, testing::ValuesIn(every_device()), name_of_device);

TensorView rows_of(const std::vector<int32_t>& rows) {
  return {rows.data(), DType::int32, {std::ssize(rows)}};
}

/// Two parts, for the second head of two rows and the first one of a third.
TEST_P(MergePicked, GoesToTheHeadsOfTheRowsNamed) {
  Tensor out({3, 2, 1}, DType::fp32, {1, 2, 3, 4, 5, 6}), lse = Tensor::filled({3, 2}, 0);
  Tensor second_out({2, 1, 1}, DType::fp32, {10, 20}), first_out({1, 1, 1}, DType::fp32, {30});
  Tensor second_lse = Tensor::filled({2, 1}, 0), first_lse({1, 1}, DType::fp32, {empty_lse});
  const std::vector<int32_t> second_rows = {2, 0}, first_rows = {1};
  const std::vector<PickedParts> parts = {
      {second_out.view(), second_lse.view(), rows_of(second_rows), 1},
      {first_out.view(), first_lse.view(), rows_of(first_rows), 0}};
  device_.backend->merge_picked({parts, out.view(), lse.view()}, device_.stream);
  EXPECT_TRUE(all_close(out.values(), std::vector<float>{1, 11, 3, 4, 5, 8}, 1e-6));
  const float twice = std::log(2.0f);
  EXPECT_TRUE(all_close(lse.values(), std::vector<float>{0, twice, 0, 0, 0, twice}, 1e-6));
}

/// Bit by bit what merge gives where the rows have just these heads.
TEST_P(MergePicked, IsMergeOfHeads) {
  constexpr int64_t rows = 70, heads = 6, group = 2, head_dim = 20;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Tensor out = Tensor::random({rows, heads, head_dim}, DType::fp32, 1);
    Tensor lse = Tensor::random({rows, heads}, DType::fp32, 2);
    Tensor by_merge = out, lse_by_merge = lse;
    std::vector<Tensor> outs, lses;
    std::vector<std::vector<int32_t>> lists(heads / group);
    std::vector<PickedParts> parts;
    outs.reserve(heads / group), lses.reserve(heads / group);
    for (int64_t i = 0; i < heads / group; ++i) {
      const int64_t count = 10 + 20 * i;
      outs.push_back(Tensor::random({count, group, head_dim}, dtype, 10 + i));
      lses.push_back(Tensor::random({count, group}, DType::fp32, 20 + i));
      std::vector<int64_t> groups;
      for (int64_t p = 0; p < count; ++p) {
        lists[i].push_back(static_cast<int32_t>((p * 11 + i) % rows));
        groups.push_back(lists[i].back() * heads / group + i);
      }
      parts.push_back({outs[i].view(), lses[i].view(), rows_of(lists[i]), group * i});
      device_.backend->merge({outs[i].view(), lses[i].view(), groups,
                              by_merge.view().reshape({rows * heads / group, group, head_dim}),
                              lse_by_merge.view().reshape({rows * heads / group, group})},
                             device_.stream);
    }
    device_.backend->merge_picked({parts, out.view(), lse.view()}, device_.stream);
    EXPECT_EQ(out.values(), by_merge.values());
    EXPECT_EQ(lse.values(), lse_by_merge.values());
  }
}

TEST_P(MergePicked, RefusesWhatDoesNotFit) {
  Tensor out = Tensor::random({3, 2, 4}, DType::fp32, 1), lse = Tensor::filled({3, 2}, 0);
  Tensor part = Tensor::random({1, 2, 4}, DType::fp32, 1), part_lse = Tensor::filled({1, 2}, 0);
  const std::vector<int32_t> one = {1}, two = {0, 1};
  const std::vector<PickedParts> too_far = {{part.view(), part_lse.view(), rows_of(one), 1}};
  EXPECT_THROW(device_.backend->merge_picked({too_far, out.view(), lse.view()}, device_.stream),
               InvalidArgument);
  const std::vector<PickedParts> too_long = {{part.view(), part_lse.view(), rows_of(two), 0}};
  EXPECT_THROW(device_.backend->merge_picked({too_long, out.view(), lse.view()}, device_.stream),
               InvalidArgument);
  device_.backend->merge_picked({{}, out.view(), lse.view()}, device_.stream);
}

}  // namespace
}  // namespace pecia::test
