// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/fitted_rule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {
namespace {

constexpr size_t num_terms = 3;
using Terms = std::array<double, num_terms>;

Terms terms_of(const RingLoad& load) {
  return {std::log(load.new_tokens), std::log(load.miss_rate()), 1};
}

/// Solves for the terms' coefficients by elimination. The matrix is positive definite.
Terms solved(std::array<Terms, num_terms> matrix, Terms right) {
  for (size_t pivot = 0; pivot < num_terms; ++pivot)
    for (size_t row = pivot + 1; row < num_terms; ++row) {
      const double factor = matrix[row][pivot] / matrix[pivot][pivot];
      for (size_t column = pivot; column < num_terms; ++column)
        matrix[row][column] -= factor * matrix[pivot][column];
      right[row] -= factor * right[pivot];
    }
  Terms found{};
  for (size_t row = num_terms; row-- > 0;) {
    double left = right[row];
    for (size_t column = row + 1; column < num_terms; ++column)
      left -= matrix[row][column] * found[column];
    found[row] = left / matrix[row][row];
  }
  return found;
}

}  // namespace

double FittedRule::h(const RingLoad& load) const {
  const Terms terms = terms_of(load);
  return new_tokens * terms[0] + miss_rate * terms[1] + constant;
}

FittedRule fit_rule(const std::vector<RingTimes>& times) {
  PECIA_CHECK(times.size() > num_terms, "{} times for a rule of {} numbers", times.size(),
              num_terms);
  std::array<Terms, num_terms> matrix{};
  Terms right{};
  for (const RingTimes& each : times) {
    PECIA_CHECK(each.pass_kv_s > 0 && each.pass_q_s > 0 && each.load.new_tokens >= 1,
                "a pass of {} tokens in {} and {} s", each.load.new_tokens, each.pass_kv_s,
                each.pass_q_s);
    const Terms terms = terms_of(each.load);
    const double ratio = std::log(each.pass_q_s / each.pass_kv_s);
    for (size_t row = 0; row < num_terms; ++row) {
      right[row] += terms[row] * ratio;
      for (size_t column = 0; column < num_terms; ++column)
        matrix[row][column] += terms[row] * terms[column];
    }
  }
  // Far below what times say, and enough for a solution where they do not say it all.
  constexpr double ridge = 1e-9;
  const double all = matrix[0][0] + matrix[1][1] + matrix[2][2];
  for (size_t row = 0; row < num_terms; ++row) matrix[row][row] += ridge * all;
  const Terms found = solved(matrix, right);
  return {found[0], found[1], found[2]};
}

int64_t count_right(const FittedRule& rule, const std::vector<RingTimes>& times) {
  return std::ranges::count_if(times, [&](const RingTimes& each) {
    return (rule.h(each.load) > 0) == (each.pass_kv_s < each.pass_q_s);
  });
}

RingDecision decide_fitted(const RingInputs& in, const FittedRule& rule) {
  RingDecision decision = rule_b(in);
  decision.h = rule.h(in.load);
  decision.ring = *decision.h > 0 ? AttentionExchange::pass_kv : AttentionExchange::pass_q;
  return decision;
}

}  // namespace pecia::parallel
