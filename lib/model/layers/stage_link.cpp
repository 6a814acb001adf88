// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/stage_link.hpp"

#include <utility>

namespace pecia::model {

StageLink::StageLink(const attention::ReplicaGroups& groups, const attention::Compute& compute)
    : groups_(groups),
      compute_(compute),
      received_(compute.buffer()),
      sent_{Sent{compute.buffer(), nullptr, 0}, Sent{compute.buffer(), nullptr, 0}} {}

void StageLink::receive(const TensorView& hidden) {
  if (hidden.rows() == 0) return;
  const TensorView there =
      groups_.wire == DType::fp32
          ? hidden
          : received_.tensor(groups_.wire, {hidden.rows(), hidden.row_elements()});
  const int from = groups_.stage - 1;
  const std::span<std::byte> bytes = attention::bytes_of(there);
  const auto transfer = groups_.line->start_send_receive({}, from, bytes, from);
  compute_.wait(*transfer, "receive_from_stage", static_cast<int64_t>(bytes.size()));
  if (there.dtype() != hidden.dtype()) compute_.copy(there, hidden);
}

void StageLink::send(const TensorView& hidden) {
  if (hidden.rows() == 0) return;
  Sent& own = sent_[next_];
  next_ = 1 - next_;
  wait(own);
  const TensorView leaves = own.buffer.tensor(groups_.wire, {hidden.rows(), hidden.row_elements()});
  compute_.copy(hidden, leaves);
  const int to = groups_.stage + 1;
  const std::span<std::byte> bytes = attention::bytes_of(leaves);
  own.bytes = static_cast<int64_t>(bytes.size());
  own.transfer = groups_.line->start_send_receive(bytes, to, {}, to);
}

void StageLink::finish() {
  for (size_t i = 0; i < sent_.size(); ++i) wait(sent_[(next_ + i) % sent_.size()]);
}

void StageLink::wait(Sent& sent) {
  if (const auto transfer = std::exchange(sent.transfer, nullptr))
    compute_.wait(*transfer, "send_to_stage", sent.bytes);
}

}  // namespace pecia::model
