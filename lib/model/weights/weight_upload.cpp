// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/weight_upload.hpp"

#include <algorithm>
#include <cstring>

namespace pecia::model {
namespace {

using device::Memory;

constexpr int64_t usual_piece_bytes = int64_t{16} << 20;

int64_t row_bytes(const TensorView& tensor) {
  return tensor.row_elements() * size_of(tensor.dtype());
}

}  // namespace

WeightUpload::WeightUpload(device::Device& device, device::Stream& stream, int64_t longest_row)
    : device_(device), stream_(stream), rows_(device, Memory::device) {
  for (Piece& piece : pieces_) {
    piece.memory = device::Buffer(device, Memory::pinned, std::max(usual_piece_bytes, longest_row));
    piece.left = device.make_event();
  }
}

int64_t WeightUpload::rows_of_piece(const TensorView& tensor) const {
  const int64_t width = row_bytes(tensor), room = pieces_[0].memory.bytes();
  PECIA_CHECK(width <= room, "a row of {} bytes through pieces of {}", width, room);
  return width > 0 ? room / width : tensor.rows();
}

void WeightUpload::copy(const TensorView& from, void* to) {
  const int64_t most = rows_of_piece(from);
  for (int64_t first = 0; first < from.rows(); first += most)
    send(from.slice_rows(first, std::min(most, from.rows() - first)),
         static_cast<std::byte*>(to) + first * row_bytes(from));
}

void WeightUpload::quantize(const TensorView& from, const kernels::QuantizeRowsArgs& to,
                            kernels::Backend& backend) {
  rows_.reserve(pieces_[0].memory.bytes());
  const int64_t most = rows_of_piece(from);
  for (int64_t first = 0; first < from.rows(); first += most) {
    const int64_t count = std::min(most, from.rows() - first);
    send(from.slice_rows(first, count), rows_.data());
    backend.quantize_rows(
        {rows_.tensor(from.dtype(), {count, from.size(1)}), to.codes.slice_rows(first, count),
         to.scales.slice_rows(first, count), to.square_sums.slice_rows(first, count)},
        stream_);
  }
}

void WeightUpload::send(const TensorView& rows, void* to) {
  Piece& piece = pieces_[filling_];
  auto* const filled = piece.memory.as<std::byte>();
  const int64_t width = row_bytes(rows);
  if (rows.dense())
    std::memcpy(filled, rows.data(), rows.rows() * width);
  else
    for (int64_t row = 0; row < rows.rows(); ++row)
      std::memcpy(filled + row * width, rows.row(row), width);
  device_.copy(to, filled, rows.rows() * width, stream_);
  piece.left->record(stream_);
  filling_ = 1 - filling_;
  pieces_[filling_].left->synchronize();
}

}  // namespace pecia::model
