// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/cuda/shared/kept_arrays.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::test {
namespace {

class KeptArrays : public testing::Test {
 protected:
  std::vector<int64_t> read(const int64_t* there, size_t count) {
    std::vector<int64_t> here(count);
    device_->copy(here.data(), there, static_cast<int64_t>(count * sizeof(int64_t)), *stream_);
    stream_->synchronize();
    return here;
  }
  const int64_t* keep(const std::vector<int64_t>& values) {
    return kept_.keep(std::span<const int64_t>(values), *stream_);
  }

  std::unique_ptr<device::Device> device_ = make_separate_device();
  std::unique_ptr<device::Stream> stream_ = device_->make_stream();
  kernels::cuda::KeptArrays kept_{*device_};
};

TEST_F(KeptArrays, AreSentOnceAndStay) {
  std::vector<int64_t> first{1, 2, 3};
  const int64_t* const there = keep(first);
  const int64_t* const other = keep({1, 2, 4});
  EXPECT_EQ(keep({1, 2, 3}), there);
  EXPECT_EQ(keep({1, 2, 4}), other);
  first = {7, 7, 7};  // the caller's array may change or go
  EXPECT_EQ(kept_.size(), 2u);
  EXPECT_EQ(read(there, 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(read(other, 3), (std::vector<int64_t>{1, 2, 4}));
}

TEST_F(KeptArrays, AreSentAgainAfterAStepWasDropped) {
  keep({1, 2, 3});
  kept_.forget();
  EXPECT_EQ(kept_.size(), 0u);
  EXPECT_EQ(read(keep({1, 2, 3}), 3), (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(KeptArrays, OfOtherLengthsAreOthers) {
  const int64_t* const longer = keep({1, 2, 3});
  const int64_t* const shorter = keep({1, 2});
  EXPECT_NE(longer, shorter);
  EXPECT_EQ(read(shorter, 2), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(keep({}), nullptr);
}

}  // namespace
}  // namespace pecia::test
