// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace pecia::schedule {

/// What became of drafts.
struct DraftCounts {
  int64_t passes = 0;    ///< in which an answer had drafted tokens
  int64_t tried = 0;     ///< drafted tokens
  int64_t accepted = 0;  ///< of these, those that the answers went on with

  DraftCounts& operator+=(const DraftCounts& other) {
    passes += other.passes, tried += other.tried, accepted += other.accepted;
    return *this;
  }
  template <typename A>
  void visit(A& archive) {
    archive(passes), archive(tried), archive(accepted);
  }
};

}  // namespace pecia::schedule
