// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of tensors that go on where others end.

#include <initializer_list>
#include <span>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::model {

class KeptRows {
 public:
  explicit KeptRows(const attention::Compute& compute) : compute_(compute) {}

  /// Each tensor [rows, …] becomes a copy of its rows at `places`, in their order. An absent one stays
  /// absent. The copies last until the next call.
  void keep(std::span<const parallel::RowRange> places, std::initializer_list<TensorView*> tensors);

 private:
  attention::Compute compute_;
  std::vector<device::Buffer> buffers_;  ///< by tensor
};

}  // namespace pecia::model
