// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Whether exchanges have work to hide behind, told by a clock that only work moves: it ticks when
/// a rank polls, as it does while it computes. Any exchange takes one tick. One that is waited for
/// before is exposed, and the wait passes the time instead. Real time says nothing here.

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::test {

struct WorkClock {
  int64_t now = 0;
  int64_t started = 0;
  std::set<std::pair<std::string, int64_t>> exposed;  ///< name and number of the operation

  int64_t count_exposed(const std::string& name) const;
};

/// `inner`, and every group split from it, with exchanges by the clock, which outlives them. Ranks
/// that poll wait there for each other's exchanges.
std::unique_ptr<comm::Communicator> clocked(std::unique_ptr<comm::Communicator> inner,
                                            WorkClock& clock);

}  // namespace pecia::test
