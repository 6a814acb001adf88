// SPDX-License-Identifier: Apache-2.0
#pragma once
/// In which parts a rank attends the rows of all ranks that exchange heads with it, so that queries
/// and outputs travel beside the work.

#include <vector>

#include "lib/parallel/sharding.hpp"

namespace pecia::parallel {

struct AttendPart {
  RowRange rows;
  /// Whose rows they are: rank (own + distance) mod N for each. None: the rank's own.
  std::vector<int> distances;

  bool operator==(const AttendPart&) const = default;
};

/// Half of the rank's own rows while the others' queries travel; theirs rank by rank, beginning
/// with the next one, each rank's outputs going home while later ones are attended; the other half
/// of its own while the last of these travel. `rows` by rank.
///
///     rank 1 of 3, 512 rows each     [512,768)  [1024,1536): 1  [0,512): 2  [768,1024)
///
/// With fewer rows on some rank all at once: a part of less than min_block_rows keeps few threads
/// busy.
std::vector<AttendPart> attend_parts(const std::vector<RowRange>& rows, int rank);

/// All rows at once, in the same form.
std::vector<AttendPart> attend_at_once(const std::vector<RowRange>& rows);

}  // namespace pecia::parallel
