// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Steps that every rank takes, and that fail on all ranks together or on none.

#include <functional>
#include <string>

#include "lib/comm/communicator.hpp"

namespace pecia::comm {

/// Runs `step` on every rank of `world`. If it throws anywhere, every rank throws the lowest
/// failing rank's error, an InputError if that is one, else a SharedError that names the rank.
/// Collective.
void together(comm::Communicator& world, const std::function<void()>& step);

/// Throws InputError on every rank when the ranks' texts differ, naming `what` and the first rank
/// that differs from rank 0. Collective.
void require_same(comm::Communicator& world, const std::string& what, const std::string& text);

}  // namespace pecia::comm
