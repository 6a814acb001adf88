// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The empirical rule of pass-KV and pass-Q, which is fitted to measured times of both. It holds for
/// their machine, heads and number of ranks. A pass has T new and P cached tokens:
///
///     h = new_tokens · ln T + miss_rate · ln(T / (T + P)) + constant
///
/// Keys travel where h is above 0. Rule B (ring_rule.hpp) needs rates alone, but counts neither
/// latencies nor what a rank waits for others.
/// Source: Context Parallelism for Scalable Million-Token Inference.

#include <vector>

#include "lib/ranks/parallel/ring_rule.hpp"

namespace pecia::parallel {

struct FittedRule {
  double new_tokens = 0, miss_rate = 0, constant = 0;

  /// Above 0 where pass-KV is the faster way. Sequences that share a pass count together.
  double h(const RingLoad& load) const;
  bool operator==(const FittedRule&) const = default;
};

/// What a pass took both ways.
struct RingTimes {
  RingLoad load;
  double pass_kv_s = 0, pass_q_s = 0;
};

/// By least squares of ln(pass_q_s / pass_kv_s), so times that differ more count more. Where all loads
/// have the same number of keys, ln T and the miss rate say the same, and of all fits it is about the
/// one with the smallest coefficients. Throws InvalidArgument for fewer than four times, or for times
/// that are not above 0.
FittedRule fit_rule(const std::vector<RingTimes>& times);

/// For how many of these times the rule names the faster way.
int64_t count_right(const FittedRule& rule, const std::vector<RingTimes>& times);

/// Decides by the fitted rule; `in` as for rule_b, whose values are in the decision as well.
RingDecision decide_fitted(const RingInputs& in, const FittedRule& rule);

}  // namespace pecia::parallel
