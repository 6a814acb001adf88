// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The parts in which a rank attends the rows of all ranks that exchange heads with it. While it
/// attends one part, the queries and outputs of other parts travel.

#include <vector>

#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

struct AttendPart {
  RowRange rows;
  /// The other ranks that have rows in this part. Distance d means rank (own + d) mod N. There is
  /// no distance if all rows are the rank's own.
  std::vector<int> distances;

  bool operator==(const AttendPart&) const = default;
};

/// Cuts the rows so that queries and outputs travel while the rank attends. First it attends half
/// of its own rows, while the queries of the other ranks travel. Then it attends the rows of the
/// other ranks, rank by rank, beginning with the next one. Each rank's outputs go home while later
/// rows are attended. At the end it attends the other half of its own rows, while the last outputs
/// travel. `rows` has an entry for each rank.
///
///     rank 1 of 3, 512 rows each     [512,768)  [1024,1536): 1  [0,512): 2  [768,1024)
///
/// If some rank has fewer than 2 · min_block_rows rows, all rows are one part, because a part of
/// less than min_block_rows keeps few threads busy.
std::vector<AttendPart> attend_parts(const std::vector<RowRange>& rows, int rank);

/// Returns all rows as one part.
std::vector<AttendPart> attend_at_once(const std::vector<RowRange>& rows);

}  // namespace pecia::parallel
