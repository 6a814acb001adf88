// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Panels of a matrix in a rank's own memory, as a run has them in its host's (model::SharedPanels).

#include "kernels/api/backend.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::measure {

/// The backend reads them while this object lives, and reads the matrix where it has no panels. It
/// and the matrix outlive this object.
class OwnPanels {
 public:
  OwnPanels(kernels::Backend& backend, device::Stream& stream, const TensorView& matrix)
      : backend_(backend), matrix_(matrix), memory_(backend_.panel_bytes(matrix)) {
    if (memory_.bytes() == 0) return;
    backend_.make_panels({matrix, memory_.data(), 0, matrix.rows()}, stream);
    backend_.use_panels(matrix, memory_.data());
  }
  OwnPanels(const OwnPanels&) = delete;
  OwnPanels& operator=(const OwnPanels&) = delete;
  ~OwnPanels() {
    if (memory_.bytes() > 0) backend_.use_panels(matrix_, nullptr);
  }

 private:
  kernels::Backend& backend_;
  TensorView matrix_;
  device::Buffer memory_;
};

}  // namespace pecia::measure
