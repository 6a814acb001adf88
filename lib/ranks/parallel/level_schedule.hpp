// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order in which a rank runs a layer of sparse attention by levels beside its products, as a value.
///
///     products   | keys, values | queries                                        | outputs |
///     acts                      | keys of all steps leave                        |
///                                 then: queries leave, own part, steps, merges
///
/// Near steps come first in everything, since the steps of level_plan.hpp do. The keys of all steps
/// travel while the product makes queries, queries while a rank attends its own part, and the tokens of
/// later steps and the outputs of earlier ones while it attends a step.
/// Source: CSPS, "three-phase pipelining". There, rows are cut into micro-partitions for the products,
/// too. Here the tokens of a step are chosen among all rows of a part, so all keys are made first.

#include <vector>

namespace pecia::parallel {

enum class LevelAct {
  send_keys,     ///< the keys of a step that other ranks attend leave
  send_queries,  ///< the same of queries
  attend_own,    ///< the rank attends its own part; no step
  attend,        ///< the step's tokens are awaited and attended, and its outputs leave
  merge          ///< the step's outputs of own rows are awaited and merged
};

struct LevelEvent {
  LevelAct act = LevelAct::attend_own;
  int step = 0;
  bool operator==(const LevelEvent&) const = default;
};

struct LevelSchedule {
  std::vector<LevelEvent> with_keys;     ///< once the product of keys and values is done
  std::vector<LevelEvent> with_queries;  ///< once the product of queries is done
};

/// Of a layer with this number of steps.
LevelSchedule level_schedule(int steps);

}  // namespace pecia::parallel
