// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows grouped by the experts that they chose, with the scratch memory that this takes.

#include <functional>
#include <vector>

#include "kernels/api/experts.hpp"
#include "kernels/api/linear.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/stream.hpp"

namespace pecia::kernels::cpu {

/// A row that chose an expert, and the weight of the expert's result.
struct ExpertRow {
  int64_t row;
  float weight;
};

class Experts {
 public:
  using Linear = std::function<void(const LinearArgs&)>;

  /// Computes `experts`. `linear` multiplies, and the activation is written in the type that
  /// `operand_type` gives for the weights that multiply it.
  void run(const ExpertsArgs& args, const device::Stream& stream, const Linear& linear,
           const std::function<DType(DType)>& operand_type);

 private:
  void sort(const ExpertsArgs& args);
  void add_expert(const ExpertsArgs& args, const Expert& expert, std::span<const ExpertRow> rows,
                  const device::Stream& stream, const Linear& linear, DType operand);

  std::vector<ExpertRow> rows_;  ///< by expert
  std::vector<int64_t> ends_;    ///< of each expert's rows
  device::Buffer x_, gate_, up_, activated_, out_;
};

}  // namespace pecia::kernels::cpu
