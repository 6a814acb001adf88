// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One exchange instead of the N − 1 steps of a ring: each rank sends its queries to the ranks that
/// hold keys of their sequence, attends its own and the visiting queries together, and the results
/// return to the ranks of their rows. Through a window, a query goes only to ranks with keys that it
/// sees.
/// Sources: CSPS §4; LoongServe (multi-master distributed decoding).

#include "lib/model/attention/attention_path.hpp"

namespace pecia::attention {

class BroadcastQ : public AttentionPath {
 public:
  /// `steps` must outlive this object.
  BroadcastQ(const Compute& compute, AttentionSteps& steps)
      : compute_(compute),
        steps_(steps),
        batch_q_(compute.buffer()),
        arrived_q_(compute.buffer()),
        batch_part_(compute) {}

  void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) override;
  void run(int64_t layer, const LayerRows& x, const Partial& to) override;
  PathTraits traits() const override {
    return {.stores_all_rows = rows_->stores_all(), .query_type = steps_.visitor_type()};
  }
  int64_t bytes_without_window(const PassRows& rows, const KvShape& shape) const override;

 private:
  /// Queries by rank of the ring, in the order of the pass: the rows of this rank that go to each
  /// rank, the number of rows that come from each rank, and the call for the own rows and, after
  /// them, for those that come.
  struct Visitors {
    std::vector<std::vector<int64_t>> leaving;
    std::vector<int64_t> coming;
    AttentionCall batch;
  };
  Visitors visitors(kernels::Window window) const;

  Compute compute_;
  AttentionSteps& steps_;
  const PassRows* rows_ = nullptr;
  std::map<kernels::Window, Visitors> visitors_;  ///< by window

  // Workspaces. They grow and are kept.
  device::Buffer batch_q_, arrived_q_;
  AttentionSteps::Buffers batch_part_;
};

}  // namespace pecia::attention
