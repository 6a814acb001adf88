// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrices of bf16 that are there a second time, packed in panels. A product with any view of such
/// a matrix can read the panels in its place. A matrix may be a view of another one that has panels,
/// too: its own ones are contiguous, and products with just this view read them.

#include <cstdint>
#include <map>
#include <utility>

#include "kernels/api/panels.hpp"
#include "lib/base/device/stream.hpp"

namespace pecia::kernels::cpu {

/// Panels of a view's columns of y, from its first element on. pack_bf16_tiles made them.
struct Panels {
  const uint16_t* data = nullptr;
  int64_t depth = 0;  ///< elements of depth that a panel has, padding included

  explicit operator bool() const { return data != nullptr; }
  /// From a column that begins a panel, and an even element, on.
  const uint16_t* at(int64_t column, int64_t element) const;
};

class WeightPanels {
 public:
  static int64_t bytes_of(const TensorView& matrix);
  static void make(const PanelsArgs& args, const device::Stream& stream);

  /// From now on `panels` stand for the matrix, and both stay as they are. Null: none does.
  void set(const TensorView& matrix, const void* panels);

  /// The panels of a view of some rows and columns. Absent unless the view begins with a panel, and
  /// its depth, cut into `splits`, consists of whole units of `depth_unit` (the last may lack
  /// elements where the matrix ends), which begin with a unit of the matrix.
  Panels of(const TensorView& view, int splits, int64_t depth_unit) const;

 private:
  struct Matrix {
    TensorView rows;
    const uint16_t* panels;
  };
  using Key = std::pair<const std::byte*, int64_t>;
  static Key key_of(const TensorView& matrix);
  static Panels panels_in(const Matrix& matrix, const TensorView& view, int splits,
                          int64_t depth_unit);

  std::map<Key, Matrix> matrices_;  ///< by their first byte and their depth
};

}  // namespace pecia::kernels::cpu
