// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Panels of what a rank multiplies by in the shift configuration (parallel::Sharding::shift), beside
/// the panels of its base configuration: both layouts are held.
///
/// A shift part is a view of the base part. Rows of a matrix are whole panels, so their views are as
/// fast as panels of their own. Columns are not: of o and down, with P ranks, a panel's piece is a P-th
/// of it, and the next piece lies a whole panel further. Products of 1 to 8 rows with columns of an 8B
/// or 70B model in 8 parts took 1.12 to 1.46 times as long as with panels of their own
/// (apps/results/epyc-zen4-2cores.md). These matrices are 35 % of a layer's bytes (8B: (E² + E·F) of
/// (2E² + 2E·Ekv + 3E·F)), of which a rank holds a P-th twice: 4.4 % of the model at P = 8.
///
/// GPUs read the views, and nothing is held twice. A row's piece there is (E or F) / P elements long,
/// whole lines of 128 bytes for every model at hand, and cuBLASLt takes the distance of rows as its
/// leading dimension. That this costs nothing has not been measured on a GPU.
///
/// Source: Shift Parallelism, which holds both layouts' weights as its second option.

#include <vector>

#include "kernels/api/backend.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/model/weights/weights.hpp"

namespace pecia::model {

class ShiftPanels {
 public:
  /// The matrices that are cut by columns, and are dense, in their part `cut`; empty where that is what
  /// `weights` has. Experts are left out, since most passes touch few of them.
  static std::vector<TensorView> matrices_of(const WeightViews& weights, const ModelConfig& config,
                                             parallel::WeightCut cut,
                                             const kernels::Backend& backend);
  static int64_t bytes_of(const std::vector<TensorView>& matrices, const kernels::Backend& backend);

  /// Packs, and lets the backend use the panels. The matrices and the backend outlive this object.
  /// Throws SystemError where there is no such memory.
  ShiftPanels(const std::vector<TensorView>& matrices, kernels::Backend& backend,
              device::Stream& stream);
  ~ShiftPanels();
  ShiftPanels(const ShiftPanels&) = delete;
  ShiftPanels& operator=(const ShiftPanels&) = delete;

  int64_t bytes() const { return memory_.bytes(); }

 private:
  kernels::Backend& backend_;
  std::vector<TensorView> used_;
  device::Buffer memory_;
};

}  // namespace pecia::model
