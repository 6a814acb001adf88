// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How likely drafted tokens are right.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace pecia::schedule {

/// How often drafted tokens were right, by how long their match was. Later ones weigh more.
class DraftAcceptance {
 public:
  /// Of `tried` drafted tokens the first `accepted` were right.
  void add(int64_t match, int64_t tried, int64_t accepted);
  /// Expected share of drafted tokens that are right, of those whose predecessors were.
  double rate(int64_t match) const;

  static constexpr size_t classes =
      6;  ///< of matches up to 2, 4, 8, 16, 32 tokens, and longer ones
  static size_t class_of(int64_t match);
  /// The longest match of a class; absent: the class has all longer ones.
  static std::optional<int64_t> longest_of(size_t match_class) {
    if (match_class + 1 == classes) return {};
    return int64_t{2} << match_class;
  }

 private:
  struct Counted {
    double judged = 0, right = 0;
  };
  std::array<Counted, classes> counted_;
};

}  // namespace pecia::schedule
