// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rotary tables of a pass in device memory: one pair for each way in which layers rotate.

#include <optional>
#include <span>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/model/layers/rotary.hpp"

namespace pecia::model {

/// Tables of the same rows, cos and sin [rows, rotary_dim / 2] fp32, absent in a layer that does not
/// rotate; and kernels::RopeArgs::scale.
struct RotationTables {
  TensorView cos, sin;
  TensorView scale = {};
};

class LayerRotations {
 public:
  LayerRotations(const ModelConfig& config, const attention::Compute& compute);

  /// Enqueues making the tables of the rows at global `positions`, whose sequences have these
  /// `lengths` (rope_length). They are valid until the next call. In a step `positions` must stay as
  /// it is.
  void make(std::span<const int64_t> positions, std::span<const int64_t> lengths);
  RotationTables of(Rotation rotation) const;
  /// The tables of queries, which have factors of their own in some families. Where only a part of
  /// a query turns (ModelConfig::latent), or none of it (unrotated_temperature), these are a scale of
  /// all of it. In a layer that does not rotate, one pair then turns by 0.
  RotationTables of_queries(Rotation rotation) const;

  /// Elements of all tables together, for each row.
  static int64_t width(const ModelConfig& config);

 private:
  struct Made {
    device::Buffer cos, sin;
    RowFrequencies rows = {};
    RotationTables tables = {};
  };
  struct One {
    Rotary rotary;
    Made all, queries;  ///< queries: empty unless they have factors of their own
  };

  void make(Made& made, std::span<const int64_t> positions, int64_t pairs);
  const One& one_of(Rotation rotation) const;

  attention::Compute compute_;
  bool scales_whole_queries_;
  std::vector<One> all_;  ///< main, then local if there is one
  std::optional<QueryTemperature> unrotated_temperature_;
  Made standing_, growth_;  ///< of queries that do not rotate, if they have a temperature
};

}  // namespace pecia::model
