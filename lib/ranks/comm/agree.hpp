// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Steps that every rank takes. A step fails on all ranks together or on none.

#include <functional>
#include <string>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// Collective: runs `step` on every rank of `world`. If it throws on some ranks, every rank throws
/// the error of the lowest of these: as an InputError if it was one, else as a SharedError that
/// names the rank.
void together(comm::Communicator& world, const std::function<void()>& step);

/// Collective: throws InputError on every rank when the ranks' texts differ. The error names `what`
/// and the first rank that differs from rank 0.
void require_same(comm::Communicator& world, const std::string& what, const std::string& text);

}  // namespace pecia::comm
