// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the setting that serves a goal best, by enumeration with cuts.

#include <functional>
#include <optional>
#include <vector>

#include "lib/simulation/tune/loss_model.hpp"

namespace pecia::tune {

/// Exactly one of the first two is present.
struct Goal {
  std::optional<double> loss;    ///< least time to the first token, losing at most this or no_loss
  std::optional<double> ttft_s;  ///< least loss within this time
  /// Besides: the share of what dense attention retrieves that is retrieved as well, at least.
  std::optional<double> retrieval = {};
  bool operator==(const Goal&) const = default;
};

struct Candidates {
  std::vector<double> drops;        ///< ascending
  std::vector<int> levels, micros;  ///< micros: among which each level has its own
  std::vector<Deal> deals{Deal::even};
  std::optional<parallel::Micros> given = {};  ///< in place of micros
};
/// Drops from 0 to 0.94 in steps of 0.02.
std::vector<double> fine_drops();

struct Found {
  Setting setting;
  double loss = 0, ttft_s = 0;
  double retrieval = 1;  ///< share of what dense attention retrieves
  bool operator==(const Found&) const = default;
};

/// What a setting costs. For `search` the loss does not fall with drop, the retrieval does not rise,
/// neither depends on micro-partitions, and the time does not grow beyond drop 0: to drop at all may
/// take time.
struct Costs {
  std::function<double(const Setting&)> loss, ttft_s;
  std::function<double(const Setting&)> retrieval = [](const Setting&) { return 1.0; };

  Found of(const Setting& setting) const {
    return {setting, loss(setting), ttft_s(setting), retrieval(setting)};
  }
};

bool meets(const Goal& goal, const Found& found);
/// Whether `a` serves the goal better than `b`, given that both meet it. Of equal ones the smaller
/// drop, then fewer levels and then fewer micro-partitions are better, and then an even deal.
bool better(const Goal& goal, const Found& a, const Found& b);

/// The best candidate that meets the goal; absent if none does. For each number of levels and each deal
/// it goes from settings that surely meet the goal towards those that may not, and stops at the first
/// that does not keep the loss or the time. Each gets the micro-partitions that are fastest
/// (parallel::best_micros). Drop 0 is looked at in any case.
/// With the models of a tuned file it takes well under a second, so a run searches anew for its goal,
/// its lengths and the rates of its links. A second regression from goals and machines to settings, as
/// the paper has it, would save this time and add its own error, so there is none.
std::optional<Found> search(const Goal& goal, const Candidates& candidates, const Costs& costs);

/// The same among any settings, by looking at all of them.
std::optional<Found> best_of(const Goal& goal, const std::vector<Found>& all);

/// The candidate that comes nearest to the goal: with the least loss, or the least time. Among
/// those that retrieve enough, if any does.
Found nearest(const Goal& goal, const Candidates& candidates, const Costs& costs);

}  // namespace pecia::tune
