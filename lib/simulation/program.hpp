// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank does in a pass, as a value: ops, copies, messages that start, and waits for them. It
/// is recorded from the Worker itself, run by a phantom of the rank, so there is no second
/// description of any schedule. No times are in it: they follow from a cluster (replay.hpp).

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels/phantom/phantom.hpp"
#include "lib/engine/execute/phantom_rank.hpp"
#include "lib/ranks/comm/phantom.hpp"

namespace pecia::simulation {

/// Copies one after the other count as one.
struct Copy {
  int64_t bytes = 0;
  bool operator==(const Copy&) const = default;
};

/// Waits for messages that started: 1 is the last start before, 2 the one before that.
struct Wait {
  int64_t starts_ago = 1;
  bool operator==(const Wait&) const = default;
};

struct Step {
  const char* span;  ///< name of the run's span that it is in: a string literal
  std::variant<kernels::OpWork, Copy, comm::PhantomStart, Wait> what;

  bool operator==(const Step& other) const;
};

/// Steps that are done some times, one after the other.
struct Section {
  std::vector<Step> steps;
  int64_t times = 1;
  int32_t layer = -1;  ///< of the model, the first time; −1: none. Each time is the next layer.
};

/// The sections of a pass.
using Program = std::vector<Section>;

/// Number of steps of all sections, each as often as it is done.
int64_t num_steps(const Program& program);

/// What is recorded: a rank, and the pass that it executes after others.
struct Recording {
  execute::PhantomSettings rank;       ///< its watcher is left out
  std::vector<schedule::Plan> before;  ///< in their order
  schedule::Plan pass;
};

enum class Layers {
  each,   ///< every layer is recorded
  folded  ///< a layer that the layers beside it repeat is recorded once
};

/// Runs a phantom of the rank. Layers are folded by recording four layers instead of all, or five
/// with sparse attention. If the second and the third do not do the same, or if the model has layers
/// of several kinds, every layer is recorded instead. Throws SystemError where the rank's device has too little memory
/// for the recorded layers.
Program record(const model::ModelConfig& config, const Recording& recording, Layers layers);

}  // namespace pecia::simulation
