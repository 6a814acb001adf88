// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layer_rotations.hpp"

#include "lib/core/error.hpp"

namespace pecia::model {

LayerRotations::One::One(const RopeConfig& config, const context::Compute& compute)
    : rotary(config),
      pinned_cos(compute.device, device::Memory::pinned),
      pinned_sin(compute.device, device::Memory::pinned),
      cos(compute.buffer()),
      sin(compute.buffer()) {}

LayerRotations::LayerRotations(const ModelConfig& config, const context::Compute& compute)
    : compute_(compute), sent_(compute.device.make_event()) {
  all_.emplace_back(config.rope, compute);
  if (config.local_rope) all_.emplace_back(*config.local_rope, compute);
}

int64_t LayerRotations::width(const ModelConfig& config) {
  return config.rope.rotary_dim + (config.local_rope ? config.local_rope->rotary_dim : 0);
}

void LayerRotations::make(std::span<const int64_t> positions, std::span<const int64_t> lengths) {
  const report::ScopedSpan span(compute_.recorder, "rope_tables", report::Kind::compute);
  sent_->synchronize();
  const auto rows = static_cast<int64_t>(positions.size());
  for (One& one : all_) {
    const auto table = [&](device::Buffer& buffer) {
      return buffer.tensor(DType::fp32, {rows, one.rotary.rotary_dim() / 2});
    };
    const TensorView cos = table(one.pinned_cos), sin = table(one.pinned_sin);
    if (compute_.device.has_contents()) one.rotary.tables(positions, lengths, cos, sin);
    one.tables = {table(one.cos), table(one.sin)};
    compute_.copy(cos, one.tables.cos);
    compute_.copy(sin, one.tables.sin);
  }
  sent_->record(compute_.stream);
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
