// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long a prompt is expected to take until its first token: the simulator of
/// ranks/parallel/level_time.hpp for each layer, with speeds that are fitted to measured prompts.
/// Source: CSPS, TTFT = R·T + Σ of layers' pipeline times.

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/ranks/parallel/ring_rule.hpp"
#include "lib/simulation/tune/level_choice.hpp"
#include "lib/simulation/tune/setting.hpp"

namespace pecia::tune {

/// What is known before anything is fitted.
struct TimeFacts {
  int64_t layers = 1;
  int64_t pass_tokens = 1;    ///< of the largest pass; longer prompts are read in several
  parallel::RingShape shape;  ///< of one rank; where ranks share heads, not tokens: all their heads
  /// As measured at the start of the runs; zeros where ranks share heads, since no tokens travel.
  parallel::RingRates rates;

  /// What layers and heads drop with deals other than even; null: there are none.
  std::shared_ptr<const Deals> deals = {};

  bool tokens_travel() const { return rates.all_to_all_bandwidth > 0; }
};

/// TTFT = s_per_token · T + s_per_dropping_token · T, where anything is dropped, + the layers'
/// pipeline times + s_per_step for each micro-partition of a level in a layer + constant_s. Each is
/// at least 0. The first and the last layer drop nothing. Beyond drop 0 it does not grow with drop.
struct TimeModel {
  double s_per_token = 0, s_per_dropping_token = 0;
  double s_per_pair = 0;  ///< of one head's query and key, all of the head's width
  double s_per_byte = 0;  ///< the same of an element that one rank sends, at the level of all ranks
  double s_per_near_byte = 0;  ///< at the levels below it, whose ranks are nearer to each other
  double s_per_step = 0, constant_s = 0;
  TimeFacts facts;

  double ttft_s(int64_t tokens, const Setting& setting, const LevelChoice& choice) const;
  /// Without levels, where the ring's messages hide.
  double dense_ttft_s(int64_t tokens, int ranks) const;

  /// The same model where attention and links have other rates. What was fitted stays as a factor.
  TimeModel with(const parallel::RingRates& rates) const;
  /// Whether these rates are those of the model's machine, up to what such measurements waver.
  bool is_of(const parallel::RingRates& rates) const;
};

/// Layers that drop: the first and the last one do not.
int64_t sparse_layers(int64_t layers);

/// Fits the samples so that relative errors are small. The ratio of the links' speed to attention's
/// is the measured one, which is that of an all-to-all of all ranks. Another one of a list, or near
/// links that are faster, count where they make the squared errors smaller by a twentieth.
TimeModel fit_time(const std::vector<Sample>& samples, const std::vector<LevelChoice>& choices,
                   const TimeFacts& facts);

}  // namespace pecia::tune
