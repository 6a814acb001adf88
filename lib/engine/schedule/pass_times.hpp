// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long passes take. The rates begin as estimates and follow what is measured, so that a run
/// with a wall time can tell what it will finish.

#include <array>
#include <cstddef>

namespace pecia::schedule {

/// Work of one kind, in one pass or in several.
struct PassWork {
  double passes = 0;
  double rows = 0;   ///< new tokens
  double pairs = 0;  ///< pairs of a new token and a token that it attends to
  /// Of each pass, tokens before the new ones; their keys travel where several instances read.
  double cached = 0;

  PassWork& operator+=(const PassWork& other) {
    passes += other.passes, rows += other.rows, pairs += other.pairs, cached += other.cached;
    return *this;
  }
  /// What each of `workers` instances has of it.
  PassWork shared(double workers) const {
    return {passes, rows / workers, pairs / workers, cached};
  }
};

/// `count` new tokens after `first` cached ones, in passes of at most `tokens_per_pass`.
PassWork work_of(double first, double count, double tokens_per_pass);

/// Seconds per pass (reading weights, waiting for other ranks), per row and per pair.
struct PassRates {
  double pass_s = 0, row_s = 0, pair_s = 0;
};

/// Rates of one kind of pass, fitted to passes as they are measured.
///
/// It minimises the squared relative error over recent passes. These may not tell some terms apart,
/// as when all have one length; then the proportions of the estimate stay: a penalty draws every
/// rate to the estimate times one common factor. No rate becomes negative.
class RateFit {
 public:
  explicit RateFit(const PassRates& estimate);

  void add(const PassWork& work, double seconds);
  bool measured() const { return passes_ > 0; }
  const PassRates& rates() const { return rates_; }
  double seconds(const PassWork& work) const;

 private:
  static constexpr size_t terms = 3;
  using Vector = std::array<double, terms>;

  void solve();

  Vector estimate_;
  std::array<Vector, terms> normal_{};  ///< normal equations of the terms over the measured time
  Vector right_{};
  double passes_ = 0;
  PassRates rates_;
};

/// Rates of passes of prompts and of passes of output tokens. A mixed pass is taken to last as long
/// as the two together.
struct PassTimes {
  RateFit prefill, decode;

  void add(const PassWork& prompts, const PassWork& answers, double seconds);
};

}  // namespace pecia::schedule
