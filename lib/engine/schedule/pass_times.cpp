// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/pass_times.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

double dot(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

}  // namespace

PassWork work_of(double first, double count, double tokens_per_pass) {
  return {std::ceil(count / tokens_per_pass), count, count * (first + 0.5 * (count + 1))};
}

RateFit::RateFit(const PassRates& estimate)
    : estimate_{estimate.pass_s, estimate.row_s, estimate.pair_s}, rates_(estimate) {
  PECIA_CHECK(estimate.pass_s > 0 && estimate.row_s > 0 && estimate.pair_s > 0,
              "an estimate of {} s, {} s and {} s", estimate.pass_s, estimate.row_s,
              estimate.pair_s);
}

double RateFit::seconds(const PassWork& work) const {
  return dot({work.passes, work.rows, work.pairs}, {rates_.pass_s, rates_.row_s, rates_.pair_s});
}

void RateFit::add(const PassWork& work, double seconds) {
  constexpr double kept = 0.9;  // factor of the weight of earlier passes: about ten count
  if (!(seconds > 0)) return;
  const Vector terms_over_time{work.passes * estimate_[0] / seconds,
                               work.rows * estimate_[1] / seconds,
                               work.pairs * estimate_[2] / seconds};
  for (size_t i = 0; i < terms; ++i) {
    right_[i] = kept * right_[i] + terms_over_time[i];
    for (size_t j = 0; j < terms; ++j)
      normal_[i][j] = kept * normal_[i][j] + terms_over_time[i] * terms_over_time[j];
  }
  passes_ = kept * passes_ + 1;
  solve();
}

/// Minimises Σ (x·f − 1)² + λ Σ (f_k / s − 1)² over f ≥ 0. x are a pass's terms by the estimate
/// over its time; s is the best factor common to all terms.
void RateFit::solve() {
  constexpr double penalty = 0.001;
  double sum_right = 0, sum_normal = 0;
  for (size_t i = 0; i < terms; ++i) {
    sum_right += right_[i];
    for (size_t j = 0; j < terms; ++j) sum_normal += normal_[i][j];
  }
  const double common = sum_right / sum_normal;
  Vector factor{};
  std::array<bool, terms> held{};  // at zero
  for (bool again = true; again;) {
    std::array<Vector, terms> a = normal_;
    Vector b = right_;
    for (size_t i = 0; i < terms; ++i) {
      a[i][i] += penalty / (common * common);
      b[i] += penalty / common;
      if (!held[i]) continue;
      for (size_t j = 0; j < terms; ++j) a[i][j] = a[j][i] = 0;
      a[i][i] = 1, b[i] = 0;
    }
    for (size_t i = 0; i < terms; ++i)  // positive definite: no pivot is zero
      for (size_t below = i + 1; below < terms; ++below) {
        const double share = a[below][i] / a[i][i];
        for (size_t j = i; j < terms; ++j) a[below][j] -= share * a[i][j];
        b[below] -= share * b[i];
      }
    for (size_t i = terms; i-- > 0;) {
      factor[i] = b[i];
      for (size_t j = i + 1; j < terms; ++j) factor[i] -= a[i][j] * factor[j];
      factor[i] /= a[i][i];
    }
    again = false;
    for (size_t i = 0; i < terms; ++i)
      if (factor[i] < 0) held[i] = again = true;
  }
  rates_ = {factor[0] * estimate_[0], factor[1] * estimate_[1], factor[2] * estimate_[2]};
}

void PassTimes::add(const PassWork& prompts, const PassWork& answers, double seconds) {
  if (answers.rows == 0) return prefill.add(prompts, seconds);
  if (prompts.rows == 0) return decode.add(answers, seconds);
  const double expected_prefill = prefill.seconds(prompts),
               expected_decode = decode.seconds(answers);
  const double share = expected_prefill / (expected_prefill + expected_decode);
  prefill.add(prompts, share * seconds);
  decode.add(answers, (1 - share) * seconds);
}

}  // namespace pecia::schedule
