// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results held against each other bit by bit.

#include <gtest/gtest.h>

#include "tests/support/replica.hpp"

namespace pecia::test {

/// Equal bits: NaN, which prompts' first tokens have, is equal to itself, and 0 differs from −0.
testing::AssertionResult same_bits(const std::vector<float>& found,
                                   const std::vector<float>& wanted);

/// Everything that a turn gives but its times; every turn is done.
void expect_same_bits(const std::map<int64_t, batch::Finished>& found,
                      const std::map<int64_t, batch::Finished>& wanted);

}  // namespace pecia::test
