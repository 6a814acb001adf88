// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank of a replica, put together: its place, its communicator for tensors, and its Worker.

#include <memory>
#include <string>

#include "lib/execute/worker.hpp"
#include "lib/resources/compute_place.hpp"

namespace pecia::execute {

class ReplicaRank {
 public:
  /// `ranks`: the replica, in the order of ProcessGrid. `tensors`: the same group for tensors in a
  /// device's own memory (resources::tensor_group); the device then times the spans of ops. Null:
  /// the transfers of `ranks` are used. `weights`: cut over TP, in the memory where the place
  /// computes. All references outlive this object. Collective over the replica.
  ReplicaRank(comm::Communicator& ranks, std::unique_ptr<comm::Communicator> tensors,
              const resources::ComputePlace& place, const model::ModelConfig& config,
              const model::WeightViews& weights, report::Recorder& recorder,
              const Worker::Settings& settings);
  ReplicaRank(const ReplicaRank&) = delete;
  ReplicaRank& operator=(const ReplicaRank&) = delete;

  const context::Compute& compute() const { return compute_; }
  Worker& worker() { return worker_; }
  const Worker& worker() const { return worker_; }
  /// The library that moves tensors, for the log; "" for tensors in the host's memory.
  std::string tensors_by() const { return tensors_ ? tensors_->tensors_by() : ""; }

 private:
  std::unique_ptr<comm::Communicator> tensors_;
  context::Compute compute_;
  Worker worker_;
};

}  // namespace pecia::execute
