// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long passes of answers take by their rows, as measured. Kernels take rows by tiles and read
/// weights once for all of them, so a pass of nine rows may take half as long again as one of eight,
/// and one of two no longer than one of a single row: no rate per row says that.

#include <array>
#include <cstddef>
#include <cstdint>

#include "lib/engine/schedule/pass_times.hpp"

namespace pecia::schedule {

/// An estimate, times a factor that was measured in passes of about as many rows.
class RowTimes {
 public:
  explicit RowTimes(const PassRates& estimate) : estimate_(estimate) {}

  /// Takes in a pass. Later ones weigh more.
  void add(const PassWork& pass, double seconds);
  /// Seconds of a pass. Between measured numbers of rows the factor goes straight from one to the
  /// other; beyond them it stays; without any it is 1.
  double seconds(const PassWork& pass) const;
  /// Whether passes of about these rows were measured, twice and not long ago.
  bool knows(double rows) const;

 private:
  // One for each number up to 8, then four for each doubling.
  static constexpr size_t groups = 64;
  static size_t group_of(double rows);
  double estimated(const PassWork& pass) const;

  struct Group {
    double factor = 0;
    int64_t passes = 0;
    int64_t last = 0;  ///< of all passes
  };
  PassRates estimate_;
  std::array<Group, groups> groups_;
  int64_t passes_ = 0;
};

}  // namespace pecia::schedule
