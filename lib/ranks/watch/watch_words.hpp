// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The watch's messages about ranks, made from the records they have shown.

#include <optional>
#include <string>
#include <vector>

#include "lib/ranks/watch/watch_board.hpp"

namespace pecia::watch {

/// Records by rank; absent for a rank that is unknown or has left.
using RankRecords = std::vector<std::optional<RankRecord>>;

/// "rank 2 (host n1)"
std::string name_of(int rank, const RankRecord& record);

/// "in phase decode, pass 7, layer 3, last span attention, waiting for broadcast #57"; where teams
/// work side by side, with ", instance 4 in team 1" after the pass. Parts that are not known are
/// left out.
std::string place_of(const RankRecord& record);

/// "broadcast #57: arrived: ranks 0-1,3; not arrived: rank 2; rank 2 (host n1) is in phase …", for
/// the operation that `waiting` waits for; "" when it waits for none. The members of the group and
/// their progress are read from the numbers that all ranks show. The text says where the first few
/// missing ranks are, except rank `told`, which was already reported.
std::string arrivals(const RankRecord& waiting, const RankRecords& all, int told = -1);

/// The wait to report when `rank` is at fault: preferably one at whose operation `rank` has not
/// arrived, and of the waits in one group the earliest. Else the first wait found. Null when no
/// rank waits.
const RankRecord* wait_for(int rank, const RankRecords& all);

}  // namespace pecia::watch
