// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/cuda/pick_rows_kernel.cuh"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/staged_parts.hpp"

namespace pecia::kernels::cuda {
namespace {

constexpr int pick_threads = 256;
constexpr int64_t most_blocks = 1024;

/// Whether every row of the view begins at a multiple of this, and is as long.
bool in_units_of(const TensorView& view, int64_t bytes) {
  const int64_t element = size_of(view.dtype());
  return view.size(1) * element % bytes == 0 && view.row_stride() * element % bytes == 0 &&
         reinterpret_cast<uintptr_t>(view.data()) % bytes == 0;
}

RowPick pick_of(const PickedRows& picked) {
  const auto& [from, rows, to] = picked;
  const int64_t width = to.size(1), to_element = size_of(to.dtype());
  RowPick pick{static_cast<const std::byte*>(from.data()),
               static_cast<std::byte*>(to.data()),
               rows ? rows.as<const int32_t>() : nullptr,
               from.row_stride() * size_of(from.dtype()),
               to.row_stride() * to_element,
               to.rows(),
               0,
               0,
               RowUnit::bytes_1};
  const auto in_units = [&](int64_t bytes, RowUnit unit) {
    pick.unit = unit;
    pick.units = static_cast<int32_t>(width * to_element / bytes);
  };
  if (from.dtype() != to.dtype()) {
    const bool widens = to.dtype() == DType::fp32;
    if (aligned_to<4>(from) && aligned_to<4>(to))
      in_units(4 * to_element, widens ? RowUnit::widen_4 : RowUnit::round_4);
    else
      in_units(to_element, widens ? RowUnit::widen_1 : RowUnit::round_1);
  } else if (in_units_of(from, 16) && in_units_of(to, 16)) {
    in_units(16, RowUnit::bytes_16);
  } else if (in_units_of(from, 4) && in_units_of(to, 4)) {
    in_units(4, RowUnit::bytes_4);
  } else {
    in_units(1, RowUnit::bytes_1);
  }
  pick.lanes = std::min(32, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(pick.units))));
  return pick;
}

}  // namespace

void pick_rows(const PickRowsArgs& args, Context& context, device::Stream& stream) {
  std::vector<RowPick> picks;
  int64_t blocks = 0;
  for (const PickedRows& picked : args.picks) {
    if (picked.to.elements() == 0) continue;
    const RowPick& pick = picks.emplace_back(pick_of(picked));
    blocks = std::max(blocks, (pick.count * pick.lanes + pick_threads - 1) / pick_threads);
  }
  with_staged(picks, context, stream, [&](const RowPick* there, int64_t count) {
    launch(stream, {.x = std::min(blocks, most_blocks), .y = count, .threads = pick_threads},
           pick_rows_kernel, there);
  });
}

}  // namespace pecia::kernels::cuda
