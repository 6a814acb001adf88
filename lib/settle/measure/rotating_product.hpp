// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Products of random numbers on a CPU whose weights come from memory, as those of a model do.

#include <map>

#include "lib/model/attention/compute.hpp"
#include "lib/settle/measure/own_panels.hpp"

namespace pecia::measure {

/// Weights that no cache holds, and rows to multiply them with. Each product takes the columns after
/// those of the last one.
class RotatingProduct {
 public:
  /// Columns are taken in whole units, so that every thread has some tasks.
  static constexpr int64_t unit = 256;

  /// y [rows, columns] = x [rows, depth] · weights [columns, depth], for up to `most_rows` rows.
  /// `bytes`: of all weights, at least a unit of them.
  RotatingProduct(const attention::Compute& compute, int64_t most_rows, int64_t depth,
                  DType weights, int64_t bytes);

  int64_t columns() const { return weight_.rows(); }

  /// Bytes of the weights of `columns` columns, with their scales.
  int64_t weight_bytes(int64_t columns) const;

  /// Multiplies by the backend of `compute`, whose memory is the host's, and waits for the end. The
  /// first time, the weights are packed for it. `columns`: whole units, at most all. The backend
  /// outlives this object.
  void run(const attention::Compute& compute, int64_t rows, int64_t columns);

 private:
  device::Buffer weight_buffer_, scale_buffer_, x_buffer_, narrow_x_buffer_, y_buffer_;
  TensorView weight_, scales_, x_, narrow_x_;
  std::map<const kernels::Backend*, OwnPanels> panels_;
  int64_t next_ = 0;  ///< the first column of the next product
};

}  // namespace pecia::measure
