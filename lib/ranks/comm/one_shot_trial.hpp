// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tries sums through peer memory (one_shot.hpp) before a run relies on them, as `pecia doctor` does.

#include <chrono>
#include <string>

#include "lib/base/device/device.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/one_shot.hpp"

namespace pecia::comm {

/// Collective. Returns the first reason of the ranks, by rank; "" if none has one.
std::string first_reason(Communicator& host, const std::string& mine);

/// Collective over `host`, whose ranks have made `sums` together: adds numbers whose sums are known, some
/// times. Returns why `sums` cannot be used, the same on every rank: numbers that are wrong, an error, or
/// other ranks that do not come within `patience`, after which `sums` are aborted. "" where all is well.
std::string try_one_shot(OneShot& sums, Communicator& host, device::Device& device,
                         std::chrono::milliseconds patience);

/// Collective over `host`, the ranks of one server with a GPU each: makes such sums and tries them.
std::string try_one_shot(Communicator& host, device::Device& device);

}  // namespace pecia::comm
