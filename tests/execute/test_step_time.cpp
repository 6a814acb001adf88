// SPDX-License-Identifier: Apache-2.0
/// Nothing is asserted about speed.

#include <gtest/gtest.h>

#include "lib/engine/execute/step_time.hpp"

namespace pecia::execute {
namespace {

TEST(StepTime, IsMeasuredWithoutAModelOnDisk) {
  const double us = measure_step_us();
  EXPECT_GT(us, 0);
  EXPECT_LT(us, 1e6) << "a phantom of two layers computes nothing";
}

}  // namespace
}  // namespace pecia::execute
