// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hidden states on their way from stage to stage of a pipeline (ranks/parallel/stages.hpp).

#include <array>
#include <memory>

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/replica_groups.hpp"

namespace pecia::model {

/// Sends a rank's own rows to the rank with the same place in the next stage, in the type in which
/// activations travel (ReplicaGroups::wire). What is sent leaves from one of two buffers, so the pass
/// that follows does not wait for it. Both sides have the same rows, in the same order of passes.
class StageLink {
 public:
  /// Both outlive this object.
  StageLink(const attention::ReplicaGroups& groups, const attention::Compute& compute);

  /// `hidden` [rows, hidden] fp32, dense: those that the stage before sends. There is one before.
  void receive(const TensorView& hidden);
  /// Starts sending them to the next stage, which there is. They may be overwritten then.
  void send(const TensorView& hidden);
  /// Waits until all has been sent.
  void finish();

 private:
  struct Sent {
    device::Buffer buffer;
    std::unique_ptr<comm::Transfer> transfer;
    int64_t bytes = 0;
  };
  void wait(Sent& sent);

  const attention::ReplicaGroups& groups_;
  attention::Compute compute_;
  device::Buffer received_;
  std::array<Sent, 2> sent_;
  size_t next_ = 0;  ///< of sent_
};

}  // namespace pecia::model
