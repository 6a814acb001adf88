// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What --check does with what it finds.

#include <functional>
#include <span>
#include <string>

#include "lib/comm/communicator.hpp"
#include "lib/core/error.hpp"

namespace pecia::bench {

/// A benchmark's result is wrong; thrown on every rank alike.
class CheckFailed : public Error {
 public:
  using Error::Error;
};

/// Collective: `problem` finds what is wrong on this rank, "" when nothing is. CheckFailed on every
/// rank with the lowest failing rank's words.
void check_together(comm::Communicator& world, const std::string& problem);

/// "" when all values differ by at most `tolerance`, else the worst with its index. NaN never
/// passes.
std::string difference(std::span<const float> actual, std::span<const float> expected,
                       double tolerance);

}  // namespace pecia::bench
