// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Times between two tokens of an answer, counted in classes that are 1 % wide, so that any number
/// of them takes little memory.

#include <cstdint>
#include <map>

namespace pecia::schedule {

class TokenGaps {
 public:
  /// Requires seconds ≥ 0. Those below a nanosecond count as one.
  void add(double seconds);
  int64_t count() const { return count_; }
  /// The time that this share of all, above 0 and up to 1, does not exceed, up to 1 % too long; 0
  /// where there is none.
  double quantile(double share) const;

 private:
  std::map<int, int64_t> by_class_;
  int64_t count_ = 0;
};

}  // namespace pecia::schedule
