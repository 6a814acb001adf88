// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Loads the model's weights to the place where this rank uses them.

#include <memory>
#include <optional>
#include <vector>

#include "lib/model/weights/device_weights.hpp"
#include "lib/model/weights/shared_panels.hpp"
#include "lib/model/weights/shift_panels.hpp"
#include "lib/model/weights/weights.hpp"
#include "lib/run/setup.hpp"
#include "lib/settle/measure/rounding.hpp"

namespace pecia::run {

struct LoadedWeights {
  model::Weights stored;  ///< mapped or converted: the part that the rank holds
  /// This rank's own copy: on its GPU, as codes, or because the job wants one. Absent where mapped
  /// weights are used, or converted ones, which are a copy already.
  std::optional<model::DeviceWeights> own = {};
  /// Panels of the weights, which the backend reads. Absent where it has none or has no room.
  std::unique_ptr<model::SharedPanels> panels = {};
  /// Panels of what the shift configuration multiplies by; absent as above, and where there is no shift.
  std::unique_ptr<model::ShiftPanels> shift_panels = {};
  int64_t packed_bytes = 0;  ///< of the panels of the host that has most
  double packing_s = 0;      ///< that the slowest rank took
  /// Present where weights were rounded at load.
  std::optional<measure::WeightRounding> rounding = {};
  /// Bytes of the checkpoint's tensors that each host has read. Mapped files are read from the
  /// host's page cache if it has them.
  std::vector<int64_t> read_bytes = {};

  const model::WeightViews& views() const {
    return own ? *own : static_cast<const model::WeightViews&>(stored);
  }
  DType held() const { return views().matrix_type(); }
  int64_t bytes() const { return own ? own->bytes() : stored.resident_bytes(); }
};

/// Throws InputError where the model has no lm_head, which text and scores need.
void require_head(const model::WeightViews& weights, const job::Job& job);

/// Reads and checks the weights. Also throws InputError where model.compute does not fit them.
/// Collective over all ranks; fails on all together.
LoadedWeights load_weights(const Setup& setup);

}  // namespace pecia::run
