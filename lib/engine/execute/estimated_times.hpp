// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lib/engine/schedule/pass_times.hpp"
#include "lib/model/weights/stored_codes.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::execute {

/// Estimates how long a replica's passes take, before any was measured. The model's operations and
/// bytes are taken at shares of `peak_flops` (of all ranks) that such machines commonly reach. If
/// elastic, the passes are those of one instance.
/// `weights`: type of the layers' matrices, but for those that `codes` keeps as codes.
schedule::PassTimes estimated_times(const model::ModelConfig& config,
                                    const resources::Resources& resources, DType weights,
                                    const model::CodeUse& codes, double peak_flops);

}  // namespace pecia::execute
