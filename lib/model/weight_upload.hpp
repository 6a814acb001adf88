// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights on their way to a device, through two pieces of pinned memory, one being filled while
/// the other is copied.

#include <memory>

#include "kernels/api/backend.hpp"
#include "lib/device/buffer.hpp"

namespace pecia::model {

class WeightUpload {
 public:
  /// Of tensors whose rows take up to `longest_row` bytes. `device` and `stream` outlive this
  /// object; who ends it has waited for the stream.
  WeightUpload(device::Device& device, device::Stream& stream, int64_t longest_row);

  /// Copies a tensor of the host's, rows possibly strided, to `to`, where it is dense.
  void copy(const TensorView& from, void* to);

  /// Rounds a matrix of the host's, rows possibly strided, to `to.codes` and the rest of `to`,
  /// whose x is not read. Beside the codes the device holds no more of the matrix than a piece.
  void quantize(const TensorView& from, const kernels::QuantizeRowsArgs& to,
                kernels::Backend& backend);

 private:
  struct Piece {
    device::Buffer memory;
    std::unique_ptr<device::Event> left;  ///< by the copy
  };

  /// How many rows of a tensor fit into a piece.
  int64_t rows_of_piece(const TensorView& tensor) const;
  void send(const TensorView& rows, void* to);

  device::Device& device_;
  device::Stream& stream_;
  Piece pieces_[2];
  int filling_ = 0;
  device::Buffer rows_;  ///< on the device: a piece that is being rounded
};

}  // namespace pecia::model
