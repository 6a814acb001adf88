// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reports what --check finds.

#include <functional>
#include <span>
#include <string>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::bench {

/// A benchmark's result is wrong. It is thrown on every rank alike.
class CheckFailed : public Error {
 public:
  using Error::Error;
};

/// Collective. `problem` describes what is wrong on this rank, "" when nothing is. Throws
/// CheckFailed on every rank with the words of the lowest failing rank.
void check_together(comm::Communicator& world, const std::string& problem);

/// "" when all values differ by at most `tolerance`, else the worst value with its index. NaN never
/// passes.
std::string difference(std::span<const float> actual, std::span<const float> expected,
                       double tolerance);

}  // namespace pecia::bench
