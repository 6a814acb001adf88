// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rotary tables of a pass in device memory: one pair for each way in which layers rotate.

#include <span>
#include <vector>

#include "lib/context/compute.hpp"
#include "lib/model/rotary.hpp"

namespace pecia::model {

/// Tables of the same rows, each [rows, rotary_dim / 2] fp32; absent in a layer that does not
/// rotate.
struct RotationTables {
  TensorView cos, sin;
};

class LayerRotations {
 public:
  LayerRotations(const ModelConfig& config, const context::Compute& compute);

  /// Enqueues making the tables of the rows at global `positions`, whose sequences have these
  /// `lengths` (rope_length). They are valid until the next call. In a step `positions` must stay as
  /// it is.
  void make(std::span<const int64_t> positions, std::span<const int64_t> lengths);
  RotationTables of(Rotation rotation) const;

  /// Elements of all tables together, for each row.
  static int64_t width(const ModelConfig& config);

 private:
  struct One {
    Rotary rotary;
    device::Buffer cos, sin;
    RowFrequencies rows = {};
    RotationTables tables = {};
  };

  context::Compute compute_;
  std::vector<One> all_;  ///< main, then local if there is one
};

}  // namespace pecia::model
