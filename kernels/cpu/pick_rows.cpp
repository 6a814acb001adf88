// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

void pick(const PickedRows& picked, int64_t begin, int64_t end, const device::Stream& stream) {
  const auto& [from, rows, to] = picked;
  const int32_t* const list = rows ? rows.as<int32_t>() : nullptr;
  const int64_t bytes = to.size(1) * size_of(to.dtype());
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = list != nullptr ? list[i] : i;
    if (from.dtype() == to.dtype())
      std::memcpy(to.row(i), from.row(row), bytes);
    else
      cast({from.slice_rows(row, 1), to.slice_rows(i, 1)}, stream);
  }
}

}  // namespace

void pick_rows(const PickRowsArgs& args, const device::Stream& stream) {
  for (const PickedRows& picked : args.picks)
    for_each_range(stream, picked.to.rows(), rows_per_task(picked.to.size(1)),
                   [&](int64_t begin, int64_t end) { pick(picked, begin, end, stream); });
}

}  // namespace pecia::kernels::cpu
