// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/passes_of_replica.hpp"

#include <algorithm>

#include "lib/foresight/settled_levels.hpp"
#include "lib/parallel/virtual_ranks.hpp"

namespace pecia::foresight {
namespace {

using parallel::AttentionExchange;
using schedule::PassKind;

parallel::PassModes modes_of(const resources::Resources& resources) {
  return parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                              resources.shift_threshold.value_or(resources.max_sequences));
}

}  // namespace

PassesOfReplica::PassesOfReplica(Passes& passes, const resources::Resources& resources,
                                 HowFar how_far)
    : passes_(passes), resources_(resources), how_far_(how_far) {
  base_.degrees = resources.degrees();
  base_.levels = settled_levels(passes.setting().replica(resources_), passes.setting().cluster);
  if (resources.levels_from()) base_.tokens_per_pass = resources.max_batch_tokens;
}

std::vector<int> PassesOfReplica::degrees() const {
  std::vector<int> degrees;
  const bool bounds = how_far_ == HowFar::at_least || how_far_ == HowFar::steps_played;
  if (resources_.elastic && bounds) return {1};
  if (resources_.elastic)
    for (int degree = 1; degree < resources_.cp; degree *= 2) degrees.push_back(degree);
  degrees.push_back(resources_.cp);
  return degrees;
}

PassShape PassesOfReplica::prompts(int degree, int64_t sequences, int64_t tokens,
                                   int64_t cached) const {
  PassShape shape = base_;
  shape.kind = PassKind::prefill;
  shape.degrees.cp = degree;
  shape.sharding = modes_of(resources_).sharding(sequences * tokens, true);
  shape.sequences = sequences, shape.tokens = tokens, shape.cached = cached;
  shape.ring = resources_.ring.value_or(AttentionExchange::pass_kv);
  if (resources_.elastic) {
    shape.masters = 1;
    return shape;
  }
  const bool by_levels = resources_.levels_from() && tokens >= *resources_.levels_from();
  if (degree == 1 || resources_.ring || by_levels) return shape;
  PassShape other = shape;
  other.ring = AttentionExchange::pass_q;
  return passes_.at_least(other).seconds < passes_.at_least(shape).seconds ? other : shape;
}

PassShape PassesOfReplica::step(int degree, int masters, int64_t sequences, int64_t context) const {
  const parallel::PassModes modes = modes_of(resources_);
  const bool is_layout = passes_.setting().job.reproducible == parallel::Reproducible::layout;
  const int64_t unit = 2 * int64_t{is_layout ? parallel::layout_ranks : degree};
  PassShape shape = base_;
  shape.kind = PassKind::decode;
  shape.degrees.cp = degree;
  shape.ring = modes.decode_ring;
  shape.sharding = modes.sharding(sequences, false);
  shape.sequences = sequences;
  shape.cached = std::max<int64_t>(1, (context + unit - 1) / unit) * unit;
  shape.masters = resources_.elastic ? masters : 0;
  return shape;
}

const PassFigures& PassesOfReplica::figures(const PassShape& shape) const {
  if (how_far_ == HowFar::alike) return passes_.alike(shape);
  const bool is_step = shape.kind == schedule::PassKind::decode;
  const bool plays = how_far_ == HowFar::played || (how_far_ == HowFar::steps_played && is_step);
  return plays ? passes_.played(shape) : passes_.at_least(shape);
}

}  // namespace pecia::foresight
