// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/shift_panels.hpp"

namespace pecia::model {

std::vector<TensorView> ShiftPanels::matrices_of(const WeightViews& weights,
                                                 const ModelConfig& config, parallel::WeightCut cut,
                                                 const kernels::Backend& backend) {
  std::vector<TensorView> matrices;
  if (cut == weights.part) return matrices;
  for (int64_t index = 0; index < config.layers; ++index) {
    const LayerWeights shifted = cut_layer(weights.layers[index], config, index, weights.part, cut);
    shifted.for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
      const MatrixRole& role = role_of(kind);
      if (role.side != MatrixRole::Side::inputs || role.unit == CutUnit::expert_ffn) return;
      for (const LinearWeight::Part& part : matrix.parts)
        if (backend.panel_bytes(part.weight) > 0) matrices.push_back(part.weight);
    });
  }
  return matrices;
}

int64_t ShiftPanels::bytes_of(const std::vector<TensorView>& matrices,
                              const kernels::Backend& backend) {
  int64_t bytes = 0;
  for (const TensorView& matrix : matrices) bytes += backend.panel_bytes(matrix);
  return bytes;
}

ShiftPanels::ShiftPanels(const std::vector<TensorView>& matrices, kernels::Backend& backend,
                         device::Stream& stream)
    : backend_(backend), memory_(bytes_of(matrices, backend)) {
  std::byte* panels = memory_.as<std::byte>();
  for (const TensorView& matrix : matrices) {
    backend.make_panels({matrix, panels, 0, matrix.rows()}, stream);
    backend.use_panels(matrix, panels);
    used_.push_back(matrix);
    panels += backend.panel_bytes(matrix);
  }
}

ShiftPanels::~ShiftPanels() {
  for (const TensorView& matrix : used_) backend_.use_panels(matrix, nullptr);
}

}  // namespace pecia::model
