// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/compute.hpp"

namespace pecia::attention {

std::vector<device::Buffer> Compute::buffers(int count) const {
  std::vector<device::Buffer> all;
  for (int i = 0; i < count; ++i) all.push_back(buffer());
  return all;
}

void Compute::copy(const TensorView& from, const TensorView& to) const {
  PECIA_CHECK(from.dtype() == to.dtype() && from.rows() == to.rows() &&
                  from.row_elements() == to.row_elements(),
              "{} rows of {} {} copied to {} of {} {}", from.rows(), from.row_elements(),
              name_of(from.dtype()), to.rows(), to.row_elements(), name_of(to.dtype()));
  const int64_t bytes = size_of(from.dtype());
  if (from.dense() && to.dense())
    device.copy(to.data(), from.data(), from.elements() * bytes, stream);
  else
    device.copy_rows(to.data(), to.row_stride() * bytes, from.data(), from.row_stride() * bytes,
                     from.row_elements() * bytes, from.rows(), stream);
}

void Compute::wait(comm::Transfer& transfer, const char* name, int64_t bytes) const {
  const report::ScopedSpan span(recorder, name, report::Kind::comm, bytes);
  transfer.wait();
}

}  // namespace pecia::attention
