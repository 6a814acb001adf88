// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Asks for the rows that are read after a product while it is made.

#include "kernels/cpu/products/bf16_products.hpp"
#include "kernels/cpu/shared/prefetch.hpp"

namespace pecia::kernels::cpu {

/// Asks for the lines of some rows, a few with each step of a product.
class LinesToAsk {
 public:
  /// The product has `steps` steps.
  LinesToAsk(const ComingRows& rows, int64_t steps)
      : rows_(rows),
        line_(static_cast<const char*>(rows.first)),
        row_lines_((rows.row_bytes + 63) / 64),
        left_(row_lines_ * rows.rows),
        each_(steps > 0 ? (left_ + steps - 1) / steps : 0) {}

  void step() {
    for (int64_t i = 0; i < each_ && left_ > 0; ++i, --left_) {
      ask_for(line_ + in_row_ * 64, 0);
      if (++in_row_ < row_lines_) continue;
      in_row_ = 0;
      line_ += rows_.stride_bytes;
    }
  }

 private:
  const ComingRows& rows_;
  const char* line_;
  int64_t row_lines_, left_, each_, in_row_ = 0;
};

}  // namespace pecia::kernels::cpu
