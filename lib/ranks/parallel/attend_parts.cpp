// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/attend_parts.hpp"

#include <algorithm>

namespace pecia::parallel {

std::vector<AttendPart> attend_at_once(const std::vector<RowRange>& rows) {
  AttendPart all{{rows.front().begin, rows.back().end}, {}};
  for (int distance = 1; distance < static_cast<int>(rows.size()); ++distance)
    all.distances.push_back(distance);
  return {all};
}

std::vector<AttendPart> attend_parts(const std::vector<RowRange>& rows, int rank) {
  const int size = static_cast<int>(rows.size());
  const bool few = std::any_of(rows.begin(), rows.end(), [](const RowRange& range) {
    return range.size() < 2 * min_block_rows;
  });
  if (few || size == 1) return attend_at_once(rows);
  std::vector<AttendPart> parts;
  parts.push_back({row_part(rows[rank], 2, 0), {}});
  for (int distance = 1; distance < size; ++distance)
    parts.push_back({rows[(rank + distance) % size], {distance}});
  parts.push_back({row_part(rows[rank], 2, 1), {}});
  return parts;
}

}  // namespace pecia::parallel
