// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "lib/engine/schedule/plan.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::execute {

/// The sequences whose keys and states have to be here, all that other ranks send of them
/// (parallel::KeyCopy), before a rank whose map this is begins the plan: those of the plan's items, and
/// those with whose tokens these begin. Each once, ascending. The rank may expect nothing of them.
std::vector<parallel::SequenceId> awaited_copies(const schedule::Plan& plan,
                                                 const parallel::KvMap& map);

}  // namespace pecia::execute
