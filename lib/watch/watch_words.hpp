// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a watch says about ranks, from what they have shown.

#include <optional>
#include <string>
#include <vector>

#include "lib/watch/watch_board.hpp"

namespace pecia::watch {

/// By rank; absent: unknown, or left.
using RankRecords = std::vector<std::optional<RankRecord>>;

/// "rank 2 (host n1)"
std::string name_of(int rank, const RankRecord& record);

/// "in phase decode, pass 7, layer 3, last span attention, waiting for broadcast #57"; without what
/// there is not.
std::string place_of(const RankRecord& record);

/// "broadcast #57: arrived: ranks 0-1,3; not arrived: rank 2; rank 2 (host n1) is in phase …", for
/// what `waiting` waits for: who belongs to the group, and how far each is, is read from the
/// numbers that all show. It says where the first few missing ranks are, and omits rank `told`,
/// which was reported already.
/// "" when `waiting` waits for nothing.
std::string arrivals(const RankRecord& waiting, const RankRecords& all, int told = -1);

/// The wait to tell about when `rank` is at fault: one that it has not arrived at, of a group's the
/// earliest; else the first at all. Null: nobody waits.
const RankRecord* wait_for(int rank, const RankRecords& all);

}  // namespace pecia::watch
