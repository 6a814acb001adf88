// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a tuner knows of a model on a grid: what it measured, models of it, and the settings that it
/// would choose.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/parallel/geometry.hpp"
#include "lib/tune/level_choice.hpp"
#include "lib/tune/loss_model.hpp"
#include "lib/tune/regression.hpp"
#include "lib/tune/search.hpp"
#include "lib/tune/setting.hpp"
#include "lib/tune/time_model.hpp"

namespace pecia::tune {

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
  int64_t layers = 1;  ///< of the model
  int cp = 1, tp = 1;  ///< a replica's ranks; those of sp count as cp
  parallel::Geometry geometry = parallel::Geometry::disjoint;
  std::vector<LevelChoice> levels;
  double likelihood_s_per_token = 0;  ///< what a likelihood adds to a prompt's time
  std::vector<DenseSample> dense;
  std::vector<Sample> samples;
  LossModel loss;
  TimeModel time;
  FitError loss_error, time_error;  ///< of the samples that are held out
  std::vector<Chosen> chosen;

  /// All levels, and the fine drops up to the largest that was measured: models say nothing beyond.
  Candidates candidates() const;
  /// What the models expect of settings for a prompt of so many tokens. Refers to this object.
  Costs costs(int64_t tokens) const;
};

/// The word of job files.
std::string name_of(parallel::Geometry geometry);

/// Fewer samples than this are too few to hold one out.
inline constexpr size_t fewest_samples = 5;

/// Holds a fifth of the samples out, fits the models to the others, says how far off they are, and
/// chooses. The members before these are given. Throws InvalidArgument with fewer samples than
/// fewest_samples.
void fit(Tuned& tuned);

/// The settings for a list of goals: losses of 0 to 0.1 nats per token, and times of 90 to 70 % of
/// dense attention's, for the prompts of each length from a power of two to the next.
std::vector<Chosen> choose(const Tuned& tuned);

}  // namespace pecia::tune
