// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::LearntRows;
using kernels::PickedParts;

class RowNeed : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, RowNeed, testing::ValuesIn(every_device()), name_of_device);

TensorView need_list(const std::vector<int32_t>& rows) {
  return {rows.data(), DType::int32, {std::ssize(rows)}};
}

Tensor logs_of(std::vector<float> sums, int64_t heads) {
  for (float& sum : sums) sum = std::log(sum);
  return {{std::ssize(sums) / heads, heads}, DType::fp32, sums};
}

/// Row 0 sees as much again in any case, of its first head; row 2 is dropped; row 3 is in no list.
TEST_P(RowNeed, IsTheLargestShareBeyondWhatIsSeenInAnyCase) {
  Tensor here = logs_of({1, 1, 2, 2, 3, 3, 4, 4}, 2), all = logs_of({4, 1, 2, 8, 12, 3, 4, 9}, 2);
  Tensor always = logs_of({1}, 1), need({4}, DType::fp32, {0.1f, 0.2f, 0.3f, 0.4f});
  const std::vector<int32_t> zero = {0}, list = {1, 0, 2}, none;
  const std::vector<PickedParts> parts = {{{}, always.view(), need_list(zero), 0}};
  const std::vector<LearntRows> lists = {{need_list(list), 2}, {need_list(none), 0}};
  device_.backend->row_need({here.view(), parts, all.view(), lists, 1.5f, need.view()},
                            device_.stream);
  EXPECT_TRUE(all_close(need.values(), std::vector<float>{0.5f, 0.75f, 0.45f, 0.4f}, 1e-6));
}

TEST_P(RowNeed, IsNeverNaN) {
  const float nan = std::nanf("");
  Tensor here({2, 2}, DType::fp32, {nan, nan, 0, nan});
  Tensor all({2, 2}, DType::fp32, {nan, 0, std::log(2.0f), 0}), need = Tensor::filled({2}, 1);
  const std::vector<int32_t> both = {0, 1};
  const std::vector<LearntRows> lists = {{need_list(both), 2}};
  device_.backend->row_need({here.view(), {}, all.view(), lists, 1, need.view()}, device_.stream);
  EXPECT_TRUE(all_close(need.values(), std::vector<float>{0, 0.5f}, 1e-6));
}

TEST_P(RowNeed, AgreesWithTheReference) {
  Device oracle = make_device("reference");
  constexpr int64_t rows = 300, group = 4;
  for (const int64_t heads : {4, 40}) {
    Tensor here = Tensor::random({rows, heads}, DType::fp32, 1), expected_here = here;
    Tensor all = Tensor::random({rows, heads}, DType::fp32, 2);
    Tensor need = Tensor::random({rows}, DType::fp32, 3), expected = need;
    Tensor always = Tensor::random({150, group}, DType::fp32, 4);
    std::vector<int32_t> some, others, seen;
    for (int32_t row = 0; row < rows; ++row) (row % 3 == 0 ? some : others).push_back(row);
    for (int32_t part = 0; part < 150; ++part) seen.push_back(2 * part);
    const std::vector<PickedParts> parts = {{{}, always.view(), need_list(seen), heads - group}};
    const std::vector<LearntRows> lists = {{need_list(some), 70}, {need_list(others), 0}};
    oracle.backend->row_need(
        {expected_here.view(), parts, all.view(), lists, 1.1f, expected.view()}, oracle.stream);
    device_.backend->row_need({here.view(), parts, all.view(), lists, 1.1f, need.view()},
                              device_.stream);
    EXPECT_TRUE(all_close(need.values(), expected.values(), 1e-5, 1e-5));
    EXPECT_TRUE(all_close(here.values(), expected_here.values(), 1e-6, 1e-6));
  }
}

TEST_P(RowNeed, OfNoRows) {
  std::vector<float> none;
  const TensorView sums(static_cast<void*>(none.data()), DType::fp32, {0, 2});
  const TensorView need(static_cast<void*>(none.data()), DType::fp32, {0});
  device_.backend->row_need({sums, {}, sums, {}, 1.1f, need}, device_.stream);
}

}  // namespace
}  // namespace pecia::test
