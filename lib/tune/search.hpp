// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the setting that serves a goal best, by enumeration with cuts.

#include <functional>
#include <optional>
#include <vector>

#include "lib/tune/setting.hpp"

namespace pecia::tune {

/// Likelihoods of texts do not tell smaller losses from none: they count as loss 0.
inline constexpr double no_loss = 0.002;

/// Exactly one is present.
struct Goal {
  std::optional<double> loss;    ///< least time to the first token, losing at most this or no_loss
  std::optional<double> ttft_s;  ///< least loss within this time
  bool operator==(const Goal&) const = default;
};

struct Candidates {
  std::vector<double> drops;  ///< ascending
  std::vector<int> levels;
};
/// Drops from 0 to 0.94 in steps of 0.02.
std::vector<double> fine_drops();

struct Found {
  Setting setting;
  double loss = 0, ttft_s = 0;
  bool operator==(const Found&) const = default;
};

/// What a setting costs. For `search` the loss does not fall with drop, and the time does not grow.
struct Costs {
  std::function<double(const Setting&)> loss, ttft_s;

  Found of(const Setting& setting) const { return {setting, loss(setting), ttft_s(setting)}; }
};

bool meets(const Goal& goal, const Found& found);
/// Whether `a` serves the goal better than `b`, given that both meet it. Of equal ones the smaller
/// drop and then fewer levels are better.
bool better(const Goal& goal, const Found& a, const Found& b);

/// The best candidate that meets the goal; absent if none does. For each number of levels it goes
/// from settings that surely meet the goal towards those that may not, and stops at the first that
/// does not.
std::optional<Found> search(const Goal& goal, const Candidates& candidates, const Costs& costs);

/// The same among any settings, by looking at all of them.
std::optional<Found> best_of(const Goal& goal, const std::vector<Found>& all);

/// The candidate that comes nearest to the goal: with the least loss, or the least time.
Found nearest(const Goal& goal, const Candidates& candidates, const Costs& costs);

}  // namespace pecia::tune
