// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/compute.hpp"

#include <algorithm>
#include <array>

namespace pecia::attention {

std::vector<device::Buffer> Compute::buffers(int count) const {
  std::vector<device::Buffer> all;
  for (int i = 0; i < count; ++i) all.push_back(buffer());
  return all;
}

namespace {

/// Rows of any shape, as those of a matrix.
TensorView as_matrix(const TensorView& rows) {
  return rows.rank() == 2 ? rows : rows.reshape({rows.rows(), rows.row_elements()});
}

/// Waits for what these point to.
template <typename Pointers>
void wait_for(report::Recorder& recorder, const Pointers& transfers, const char* name,
              int64_t bytes) {
  const auto wait = [&] {
    for (const auto& transfer : transfers) transfer->wait();
  };
  const auto held_back = [](const auto& transfer) { return transfer->is_held_back(); };
  if (!transfers.empty() && std::ranges::all_of(transfers, held_back)) {
    recorder.count_in_group(name, report::Kind::comm, bytes);  // a mark would cut the step
    return wait();
  }
  const report::ScopedSpan span(recorder, name, report::Kind::comm, bytes);
  wait();
}

}  // namespace

void Compute::copy(const TensorView& from, const TensorView& to) const {
  PECIA_CHECK(from.rows() == to.rows() && from.row_elements() == to.row_elements(),
              "{} rows of {} copied to {} of {}", from.rows(), from.row_elements(), to.rows(),
              to.row_elements());
  if (from.dtype() != to.dtype()) return backend.cast({as_matrix(from), as_matrix(to)}, stream);
  const int64_t bytes = size_of(from.dtype());
  if (from.dense() && to.dense())
    device.copy(to.data(), from.data(), from.elements() * bytes, stream);
  else
    device.copy_rows(to.data(), to.row_stride() * bytes, from.data(), from.row_stride() * bytes,
                     from.row_elements() * bytes, from.rows(), stream);
}

TensorView Compute::as_type(const TensorView& x, DType type, device::Buffer& buffer) const {
  if (x.dtype() == type) return x;
  const TensorView copied = x.rank() == 2 ? buffer.tensor(type, {x.rows(), x.size(1)})
                                          : buffer.tensor(type, {x.rows(), x.size(1), x.size(2)});
  const report::ScopedSpan span(recorder, "cast", report::Kind::compute,
                                x.elements() * (size_of(x.dtype()) + size_of(type)));
  copy(x, copied);
  return copied;
}

std::unique_ptr<comm::Transfer> Compute::start_all_to_all(comm::Communicator& group,
                                                          const comm::Blocks& blocks) const {
  return recorder.keeps_ops() ? group.start_all_to_all(blocks)
                              : group.start_all_to_all_in_step(blocks);
}

std::unique_ptr<comm::Transfer> Compute::start_send_receive(comm::Communicator& group,
                                                            std::span<const std::byte> send, int to,
                                                            std::span<std::byte> receive,
                                                            int from) const {
  return recorder.keeps_ops() ? group.start_send_receive(send, to, receive, from)
                              : group.start_send_receive_in_step(send, to, receive, from);
}

void Compute::wait(std::span<const std::unique_ptr<comm::Transfer>> transfers, const char* name,
                   int64_t bytes) const {
  wait_for(recorder, transfers, name, bytes);
}

void Compute::wait(comm::Transfer& transfer, const char* name, int64_t bytes) const {
  wait_for(recorder, std::array{&transfer}, name, bytes);
}

}  // namespace pecia::attention
