// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/weight_panels.hpp"

#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

const std::byte* first_byte(const TensorView& tensor) {
  return static_cast<const std::byte*>(tensor.data());
}

/// The products of all kernels read panels whose depth is padded so.
int64_t padded(int64_t depth) {
  return (depth + bf16_depth - 1) / bf16_depth * bf16_depth;
}

}  // namespace

const uint16_t* Panels::at(int64_t column, int64_t element) const {
  return data + column * depth + element * bf16_panel;
}

int64_t WeightPanels::bytes_of(const TensorView& matrix) {
  const int64_t columns = (matrix.rows() + bf16_panel - 1) / bf16_panel * bf16_panel;
  return columns * padded(matrix.size(1)) * size_of(DType::bf16);
}

void WeightPanels::make(const PanelsArgs& args, const device::Stream& stream) {
  static_assert(PanelsArgs::panel_rows == bf16_panel);
  const int64_t depth = args.matrix.size(1);
  const Panels to{static_cast<const uint16_t*>(args.panels), padded(depth)};
  for_each_range(stream, args.end - args.begin, bf16_panel, [&](int64_t begin, int64_t end) {
    const int64_t row = args.begin + begin;
    pack_bf16_tiles({.rows = static_cast<const uint16_t*>(args.matrix.row(row)),
                     .row_stride = args.matrix.row_stride(),
                     .columns = end - begin,
                     .depth = depth,
                     .packed = const_cast<uint16_t*>(to.at(row, 0))});
  });
}

WeightPanels::Key WeightPanels::key_of(const TensorView& matrix) {
  return {first_byte(matrix), matrix.size(1)};
}

void WeightPanels::set(const TensorView& matrix, const void* panels) {
  PECIA_CHECK(matrix.dtype() == DType::bf16, "panels of {}", name_of(matrix.dtype()));
  if (panels == nullptr)
    matrices_.erase(key_of(matrix));
  else
    matrices_.insert_or_assign(key_of(matrix),
                               Matrix{matrix, static_cast<const uint16_t*>(panels)});
}

Panels WeightPanels::panels_in(const Matrix& matrix, const TensorView& view, int splits,
                               int64_t depth_unit) {
  const TensorView& rows = matrix.rows;
  const int64_t offset = (first_byte(view) - first_byte(rows)) / size_of(DType::bf16);
  const int64_t row = offset / rows.row_stride(), column = offset % rows.row_stride();
  const int64_t depth = view.size(1);
  if (view.dtype() != DType::bf16 || view.row_stride() != rows.row_stride() ||
      row + view.rows() > rows.rows() || column + depth > rows.size(1))
    return {};
  const bool whole = depth % depth_unit == 0 || column + depth == rows.size(1);
  if (row % bf16_panel != 0 || column % depth_unit != 0 || !whole ||
      (splits > 1 && depth / splits % depth_unit != 0))
    return {};
  const Panels all{matrix.panels, padded(rows.size(1))};
  return {all.at(row, column), all.depth};
}

Panels WeightPanels::of(const TensorView& view, int splits, int64_t depth_unit) const {
  if (const auto own = matrices_.find(key_of(view)); own != matrices_.end())
    if (const Panels panels = panels_in(own->second, view, splits, depth_unit)) return panels;
  // Matrices that have the view begin before it, or at its first byte and are deeper.
  for (auto after = matrices_.upper_bound({first_byte(view), INT64_MAX});
       after != matrices_.begin();) {
    const Matrix& matrix = (--after)->second;
    if (const Panels panels = panels_in(matrix, view, splits, depth_unit)) return panels;
    const TensorView last = matrix.rows.slice_rows(matrix.rows.rows() - 1, 1);
    if (first_byte(last) + last.size(1) * size_of(DType::bf16) <= first_byte(view)) break;
  }
  return {};
}

}  // namespace pecia::kernels::cpu
