// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"

#include "kernels/api/validate.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::kernels {

void Backend::rotate_and_store(const RotateAndStoreArgs&, device::Stream&) {
  fail<Unsupported>("the backend {} rotates and stores by single ops", name());
}

void Backend::head_linear(const HeadLinearArgs& args, device::Stream& stream) {
  validate(args);
  for (int64_t head = 0; head < args.heads; ++head) linear(linear_of_head(args, head), stream);
}

void Backend::gated_linear(const GatedLinearArgs&, device::Stream&) {
  fail<Unsupported>("the backend {} gates by single ops", name());
}

void Backend::soft_cap(const SoftCapArgs&, device::Stream&) {
  fail<Unsupported>("the backend {} caps no values", name());
}

void Backend::make_panels(const PanelsArgs&, device::Stream&) {
  fail<Unsupported>("the backend {} has no use for panels", name());
}

void Backend::use_panels(const TensorView&, const void*) {
  fail<Unsupported>("the backend {} has no use for panels", name());
}

}  // namespace pecia::kernels
