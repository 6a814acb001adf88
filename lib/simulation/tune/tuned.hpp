// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a tuner knows of a model on a grid: what it measured, models of it, and the settings that
/// it would choose.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/ranks/parallel/geometry.hpp"
#include "lib/simulation/tune/level_choice.hpp"
#include "lib/simulation/tune/loss_model.hpp"
#include "lib/simulation/tune/regression.hpp"
#include "lib/simulation/tune/search.hpp"
#include "lib/simulation/tune/setting.hpp"
#include "lib/simulation/tune/time_model.hpp"

namespace pecia::tune {

/// Whether a loss of 0 is certain where nothing is dropped.
NoDrop no_drop_of(parallel::Geometry geometry);

/// How a goal fared with prompts that were not fitted, among the settings that were measured.
struct HeldOutGoal {
  Goal goal;            ///< ttft_s is a share of dense attention's
  int64_t prompts = 0;  ///< for which the models, fitted without them, found a setting
  double measured = 0;  ///< the mean loss of their tokens, or the share of their dense time
  bool kept = false;    ///< false without prompts
  bool operator==(const HeldOutGoal&) const = default;
};

/// What was measured with a setting, means over the prompts of a bucket, as a search of all
/// measured settings finds it: it is the oracle of the models' choice.
struct Oracle {
  Found best;
  /// Measured with the setting that the models choose among the measured ones; absent where they
  /// find none.
  std::optional<Found> models;
  bool holds = false;  ///< `models` meets the goal as measured
  double gap = 0;      ///< of `models` to `best`: a share of its time, or with a goal of time nats
  bool operator==(const Oracle&) const = default;
};

/// The choice for a goal among prompts of similar length. Costs are means over them.
struct Chosen {
  int64_t shortest = 0, longest = 0;  ///< tokens of the bucket's prompts
  double dense_ttft_s = 0;
  Goal goal;
  bool met = false;
  Found found;                   ///< if the goal is not met, the nearest to it
  std::optional<Oracle> oracle;  ///< absent where no measured setting meets the goal
  bool operator==(const Chosen&) const = default;
};

struct Tuned {
  std::string version;  ///< of the program
  std::string model_path, config_sha256;
  int cp = 1, tp = 1;  ///< a replica's ranks; those of sp count as cp
  parallel::Geometry geometry = parallel::Geometry::disjoint;
  std::vector<LevelChoice> levels;
  std::vector<int> micros;   ///< among which the search chooses
  TimeFacts facts;           ///< of the runs
  LayerTokens layer_tokens;  ///< of the calibration prompts; empty: samples are dealt out evenly
  std::vector<DenseSample> dense;
  std::vector<Sample> samples;
  LossModel loss;
  LossModel missed;  ///< of retrieval (fit_missed)
  TimeModel time;
  FitError loss_error, time_error;  ///< of prompts that are held out
  std::vector<HeldOutGoal> held_out_goals;
  std::vector<Chosen> chosen;

  /// All levels, micros and deals, and the fine drops up to the largest that was measured: models say
  /// nothing beyond.
  Candidates candidates() const;
  /// Gives the facts the deals of `layer_tokens`, for fine drops and for `more`. Call it before
  /// anything asks for times of deals other than even.
  void make_deals(const std::vector<double>& more = {});
  /// What the models expect of settings for a prompt of `tokens` tokens, where the loss is
  /// LossModel::bound, and the retrieval as much lower. Refers to this object.
  Costs costs(int64_t tokens) const;
};

/// The word of job files.
std::string name_of(parallel::Geometry geometry);

/// With fewer there is nothing to fit, or nothing to hold out.
inline constexpr size_t fewest_samples = 5, fewest_prompts = 2;

/// Fits the models to all samples and chooses. How far off the models are is said by others that
/// are fitted without some prompts, each prompt being held out once. The members before the models
/// are given. Throws InvalidArgument with too few samples or prompts.
void fit(Tuned& tuned);

/// The goals that are looked at: losses, and shares of dense attention's time.
inline constexpr double goal_losses[]{0, 0.01, 0.02, 0.05, 0.1};
inline constexpr double goal_times[]{0.9, 0.8, 0.7};

/// The settings for these goals, for the prompts of each length from a power of two to the next.
std::vector<Chosen> choose(const Tuned& tuned);

}  // namespace pecia::tune
