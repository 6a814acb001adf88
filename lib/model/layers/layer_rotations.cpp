// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/layer_rotations.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::model {

LayerRotations::LayerRotations(const ModelConfig& config, const attention::Compute& compute)
    : compute_(compute),
      scales_whole_queries_(config.latent.has_value()),
      unrotated_temperature_(config.unrotated_temperature),
      standing_{compute.buffer(), compute.buffer()},
      growth_{compute.buffer(), compute.buffer()} {
  const auto made = [&] { return Made{compute.buffer(), compute.buffer()}; };
  const auto add = [&](const RopeConfig& rope) { all_.push_back({Rotary(rope), made(), made()}); };
  add(config.rope);
  if (config.local_rope) add(*config.local_rope);
}

int64_t LayerRotations::width(const ModelConfig& config) {
  const auto of = [](const RopeConfig& rope) {
    return (Rotary(rope).scales_queries() ? 2 : 1) * rope.rotary_dim;
  };
  const int64_t unrotated = config.unrotated_temperature ? 4 : 0;
  return of(config.rope) + (config.local_rope ? of(*config.local_rope) : 0) + unrotated;
}

void LayerRotations::make(std::span<const int64_t> positions, std::span<const int64_t> lengths) {
  const report::ScopedSpan span(compute_.recorder, "rope_tables", report::Kind::compute);
  for (One& one : all_) {
    const int64_t pairs = one.rotary.rotary_dim() / 2;
    one.all.rows = one.rotary.frequencies_of(lengths);
    make(one.all, positions, pairs);
    if (!one.rotary.scales_queries()) continue;
    one.queries.rows = scales_whole_queries_ ? one.rotary.growth_of_queries(positions)
                                             : one.rotary.frequencies_of_queries(positions);
    make(one.queries, positions, scales_whole_queries_ ? 1 : pairs);
  }
  if (!unrotated_temperature_) return;
  standing_.rows = {std::vector<int32_t>(positions.size()), {0}, {1}};
  growth_.rows = growth_of(*unrotated_temperature_, positions);
  make(standing_, positions, 1);
  make(growth_, positions, 1);
}

void LayerRotations::make(Made& made, std::span<const int64_t> positions, int64_t pairs) {
  const auto rows = static_cast<int64_t>(positions.size());
  const auto table = [&](device::Buffer& buffer) {
    return buffer.tensor(DType::fp32, {rows, pairs});
  };
  made.tables = {table(made.cos), table(made.sin)};
  compute_.backend.rope_tables({positions, made.rows.sets, made.rows.frequencies, made.rows.factors,
                                made.tables.cos, made.tables.sin},
                               compute_.stream);
}

const LayerRotations::One& LayerRotations::one_of(Rotation rotation) const {
  if (rotation == Rotation::main) return all_.front();
  PECIA_CHECK(rotation == Rotation::local && all_.size() == 2, "no rotation of number {}",
              static_cast<int>(rotation));
  return all_.back();
}

RotationTables LayerRotations::of(Rotation rotation) const {
  return rotation == Rotation::none ? RotationTables{} : one_of(rotation).all.tables;
}

RotationTables LayerRotations::of_queries(Rotation rotation) const {
  if (rotation == Rotation::none) {
    if (!unrotated_temperature_) return {};
    const TensorView& growth = growth_.tables.cos;
    return {standing_.tables.cos, standing_.tables.sin, growth.reshape({growth.rows()})};
  }
  const One& one = one_of(rotation);
  if (one.rotary.scales_queries() && scales_whole_queries_) {
    const TensorView& growth = one.queries.tables.cos;
    return {one.all.tables.cos, one.all.tables.sin, growth.reshape({growth.rows()})};
  }
  return one.rotary.scales_queries() ? one.queries.tables : one.all.tables;
}

}  // namespace pecia::model
