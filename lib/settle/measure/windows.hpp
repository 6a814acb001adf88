// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much work all threads of all ranks do at once, counted in windows of time.

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "lib/base/device/stream.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::measure {

struct Windows {
  int count;
  double seconds;  ///< length of each
  /// When this time is over on any rank, no further window begins: ranks that share a busy core wait
  /// for each other much longer than they work.
  double most_s = std::numeric_limits<double>::infinity();
};

/// A small piece of a thread's work, about ten microseconds; returns the amount of work.
using Piece = std::function<double(int thread)>;

/// Work of all ranks together per second, window by window. The ranks of a host have the same
/// windows, and only work inside a window counts, so ranks that share cores do not each count all
/// of them. A window in which nothing was done is tried again, a limited number of times. Ranks of
/// other hosts have windows at about the same time. Collective over `world`; every rank gets the
/// same.
std::vector<double> rates_of_all(comm::Communicator& world, const device::Stream& stream,
                                 Windows windows, const Piece& piece);

}  // namespace pecia::measure
