// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layer_rotations.hpp"

#include "lib/core/error.hpp"

namespace pecia::model {

LayerRotations::LayerRotations(const ModelConfig& config, const context::Compute& compute)
    : compute_(compute) {
  const auto add = [&](const RopeConfig& rope) {
    all_.push_back({Rotary(rope), compute.buffer(), compute.buffer()});
  };
  add(config.rope);
  if (config.local_rope) add(*config.local_rope);
}

int64_t LayerRotations::width(const ModelConfig& config) {
  return config.rope.rotary_dim + (config.local_rope ? config.local_rope->rotary_dim : 0);
}

void LayerRotations::make(std::span<const int64_t> positions, std::span<const int64_t> lengths) {
  const report::ScopedSpan span(compute_.recorder, "rope_tables", report::Kind::compute);
  const auto rows = static_cast<int64_t>(positions.size());
  for (One& one : all_) {
    const auto table = [&](device::Buffer& buffer) {
      return buffer.tensor(DType::fp32, {rows, one.rotary.rotary_dim() / 2});
    };
    one.rows = one.rotary.frequencies_of(lengths);
    one.tables = {table(one.cos), table(one.sin)};
    compute_.backend.rope_tables({positions, one.rows.sets, one.rows.frequencies,
                                  one.rotary.attention_factor(), one.tables.cos, one.tables.sin},
                                 compute_.stream);
  }
}

RotationTables LayerRotations::of(Rotation rotation) const {
  switch (rotation) {
    case Rotation::none:
      return {};
    case Rotation::main:
      return all_.front().tables;
    case Rotation::local:
      PECIA_CHECK(all_.size() == 2, "a model without a local rotation");
      return all_.back().tables;
  }
  fail<InvalidArgument>("a rotation of number {}", static_cast<int>(rotation));
}

}  // namespace pecia::model
