// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"

#include "lib/core/error.hpp"

namespace pecia::kernels {

void Backend::rotate_and_store(const RotateAndStoreArgs&, device::Stream&) {
  fail<Unsupported>("the backend {} rotates and stores by single ops", name());
}

void Backend::gated_linear(const GatedLinearArgs&, device::Stream&) {
  fail<Unsupported>("the backend {} gates by single ops", name());
}

}  // namespace pecia::kernels
