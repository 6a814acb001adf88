// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Queries go round the team's ring, and each rank attends those that are here to its own keys. The
/// results return to the ranks of their rows, where they are merged. On a ring of one rank nothing
/// travels.
/// Source: Context Parallelism for Scalable Million-Token Inference, Alg. 3 (pass-Q), Alg. 4
/// (batched pass-Q decode).

#include "lib/model/attention/attention_path.hpp"

namespace pecia::attention {

class PassQ : public AttentionPath {
 public:
  /// `steps` must outlive this object.
  PassQ(const Compute& compute, AttentionSteps& steps)
      : compute_(compute),
        steps_(steps),
        leaving_(compute.buffer()),
        visiting_(compute.buffer()),
        travelling_{compute.buffer(), compute.buffer()} {}

  void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) override;
  void run(int64_t layer, const LayerRows& x, const Partial& to) override;
  PathTraits traits() const override {
    return {.stores_all_rows = rows_->stores_all(), .query_type = steps_.visitor_type()};
  }
  int64_t bytes_without_window(const PassRows& rows, const KvShape& shape) const override;

 private:
  Compute compute_;
  AttentionSteps& steps_;
  const PassRows* rows_ = nullptr;
  std::vector<std::vector<AttentionCall>> visits_;  ///< by kind of layer and step
  device::Buffer leaving_, visiting_;               ///< own and others' queries in another type
  device::Buffer travelling_[2];                    ///< it grows and is kept
};

}  // namespace pecia::attention
