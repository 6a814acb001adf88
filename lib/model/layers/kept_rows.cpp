// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/kept_rows.hpp"

namespace pecia::model {
namespace {

TensorView as_matrix(const TensorView& tensor) {
  return tensor.reshape({tensor.rows(), tensor.row_elements()});
}

/// A dense tensor like another one, with this number of rows.
TensorView rows_like(const TensorView& tensor, int64_t rows, device::Buffer& buffer) {
  const TensorView all = buffer.tensor(tensor.dtype(), {rows, tensor.row_elements()});
  if (tensor.rank() == 1) return all.reshape({rows});
  return tensor.rank() == 2 ? all : all.reshape({rows, tensor.size(1), tensor.size(2)});
}

}  // namespace

void KeptRows::keep(std::span<const parallel::RowRange> places,
                    std::initializer_list<TensorView*> tensors) {
  int64_t rows = 0, bytes = 0;
  for (const parallel::RowRange& place : places) rows += place.size();
  while (buffers_.size() < tensors.size()) buffers_.push_back(compute_.buffer());
  std::vector<kernels::PickedRows> picks;
  auto buffer = buffers_.begin();
  for (TensorView* const tensor : tensors) {
    device::Buffer& to = *buffer++;
    if (!*tensor) continue;
    const TensorView kept = rows_like(*tensor, rows, to);
    int64_t done = 0;
    for (const parallel::RowRange& place : places) {
      picks.push_back({as_matrix(*tensor).slice_rows(place.begin, place.size()),
                       {},
                       as_matrix(kept).slice_rows(done, place.size())});
      done += place.size();
    }
    bytes += 2 * kept.elements() * size_of(kept.dtype());
    *tensor = kept;
  }
  const report::ScopedSpan span(compute_.recorder, "keep_rows", report::Kind::compute, bytes);
  compute_.backend.pick_rows({picks}, compute_.stream);
}

}  // namespace pecia::model
