// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lib/base/core/tensor_view.hpp"

namespace pecia {
namespace {

TEST(TensorView, SlicesShareMemory) {
  std::vector<float> data(12);
  std::iota(data.begin(), data.end(), 0.f);
  const TensorView matrix(data.data(), DType::fp32, {3, 4});

  const TensorView block = matrix.slice_rows(1, 2).slice_columns(2, 2);

  EXPECT_EQ(block.rows(), 2);
  EXPECT_EQ(block.row_stride(), 4);
  EXPECT_FALSE(block.dense());
  EXPECT_EQ(block.as<float>()[0], 6.f);
  EXPECT_EQ(static_cast<float*>(block.row(1))[1], 11.f);
}

TEST(TensorView, RefusesWhatIsOutside) {
  std::vector<float> data(12);
  const TensorView matrix(data.data(), DType::fp32, {3, 4});
  EXPECT_THROW(matrix.slice_rows(2, 2), InvalidArgument);
  EXPECT_THROW(matrix.slice_columns(-1, 2), InvalidArgument);
  EXPECT_THROW(matrix.reshape({5, 2}), InvalidArgument);
  EXPECT_THROW(matrix.slice_columns(0, 2).reshape({6}), InvalidArgument);
  EXPECT_THROW(matrix.as<double>(), InvalidArgument);
  EXPECT_FALSE(TensorView());
}

}  // namespace
}  // namespace pecia
