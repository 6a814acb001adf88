// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many tokens to draft: as long as the next one is likely enough to be worth its row.

#include <array>
#include <cstddef>
#include <cstdint>

namespace pecia::schedule {

/// How often drafted tokens were right, by how long their match was. Later ones weigh more.
class DraftAcceptance {
 public:
  /// Of `tried` drafted tokens the first `accepted` were right.
  void add(int64_t match, int64_t tried, int64_t accepted);
  /// Expected share of drafted tokens that are right, of those whose predecessors were.
  double rate(int64_t match) const;

 private:
  static constexpr size_t classes =
      6;  ///< of matches up to 2, 4, 8, 16, 32 tokens, and longer ones
  static size_t class_of(int64_t match);

  struct Counted {
    double judged = 0, right = 0;
  };
  std::array<Counted, classes> counted_;
};

/// Seconds in a pass.
struct DraftPrice {
  double token_s = 0;  ///< that a token of an answer takes where none is drafted
  double row_s = 0;    ///< that one more row takes

  /// Up to `most` tokens that are each worth a row, at this rate.
  ///
  ///     a token takes 10 ms, a row 1 ms; of drafted tokens half are right
  ///     they save 5, 2.5, 1.25 and 0.6 ms: 3 are worth it
  int64_t worth(double rate, int64_t most) const;
};

}  // namespace pecia::schedule
