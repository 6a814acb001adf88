// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The model's weights, where this rank uses them.

#include <optional>

#include "lib/measure/rounding.hpp"
#include "lib/model/device_weights.hpp"
#include "lib/model/weights.hpp"
#include "lib/run/setup.hpp"

namespace pecia::run {

struct LoadedWeights {
  model::Weights stored;  ///< mapped or converted: the part that the rank holds
  /// This rank's own copy: on its GPU, of codes, or where the job wants one. Absent where weights
  /// are mapped, or converted, which is a copy.
  std::optional<model::DeviceWeights> own;
  std::optional<measure::WeightRounding> rounding;  ///< where they were rounded at load

  const model::WeightViews& views() const {
    return own ? *own : static_cast<const model::WeightViews&>(stored);
  }
  DType held() const { return views().matrix_type(); }
  int64_t bytes() const { return own ? own->bytes() : stored.resident_bytes(); }
};

/// Reads and checks them. InputError also where model.compute does not fit them. Collective over
/// all ranks; fails on all together.
LoadedWeights load_weights(const Setup& setup);

}  // namespace pecia::run
