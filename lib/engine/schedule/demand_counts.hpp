// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cstdint>

namespace pecia::schedule {

/// What memory on demand (demand.hpp) has led to.
struct DemandCounts {
  int64_t most_at_once = 0;  ///< sequences
  int64_t blocks = 0;        ///< that sequences have grown by
  int64_t parked = 0;        ///< how often keys of a sequence were parked
  int64_t parked_tokens = 0;
  int64_t returned_tokens = 0;
  int64_t moved = 0;  ///< how often keys moved to another instance to make room
  int64_t moved_tokens = 0;
  int64_t scale_ups = 0;      ///< how often a sequence grew on an instance that had none of it
  int64_t forgotten = 0;      ///< how often a sequence was forgotten
  int64_t reread_tokens = 0;  ///< that were computed again

  DemandCounts& operator+=(const DemandCounts& other) {
    most_at_once = std::max(most_at_once, other.most_at_once);
    blocks += other.blocks, parked += other.parked;
    parked_tokens += other.parked_tokens, returned_tokens += other.returned_tokens;
    moved += other.moved, moved_tokens += other.moved_tokens;
    scale_ups += other.scale_ups;
    forgotten += other.forgotten, reread_tokens += other.reread_tokens;
    return *this;
  }
  template <typename A>
  void visit(A& archive) {
    archive(most_at_once), archive(blocks), archive(parked), archive(parked_tokens),
        archive(returned_tokens), archive(moved), archive(moved_tokens), archive(scale_ups),
        archive(forgotten), archive(reread_tokens);
  }
};

}  // namespace pecia::schedule
