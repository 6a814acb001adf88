// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Uploads weights to a device through two pieces of pinned memory. One is filled while the other
/// is copied.

#include <memory>

#include "kernels/api/backend.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::model {

class WeightUpload {
 public:
  /// For tensors whose rows take up to `longest_row` bytes. `device` and `stream` outlive this
  /// object. Wait for the stream before destroying it.
  WeightUpload(device::Device& device, device::Stream& stream, int64_t longest_row);

  /// Copies a host tensor, whose rows may be strided, to dense memory at `to`.
  void copy(const TensorView& from, void* to);

  /// Rounds a host matrix, whose rows may be strided, to `to.codes` and the other outputs of `to`;
  /// `to.x` is not read. Besides the codes, the device holds only one piece of the matrix.
  void quantize(const TensorView& from, const kernels::QuantizeRowsArgs& to,
                kernels::Backend& backend);

 private:
  struct Piece {
    device::Buffer memory;
    std::unique_ptr<device::Event> left;  ///< recorded after the copy of the piece
  };

  /// How many rows of a tensor fit into a piece.
  int64_t rows_of_piece(const TensorView& tensor) const;
  void send(const TensorView& rows, void* to);

  device::Device& device_;
  device::Stream& stream_;
  Piece pieces_[2];
  int filling_ = 0;
  device::Buffer rows_;  ///< the piece that is being rounded, on the device
};

}  // namespace pecia::model
