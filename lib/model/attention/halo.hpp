// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Layers with a sliding window: each rank sends the keys that another one sees straight to it
/// (ranks/parallel/halo.hpp), attends its own keys meanwhile, and then what has come, in one call.

#include "lib/model/attention/attention_path.hpp"
#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

class Halo : public AttentionPath {
 public:
  /// `steps` must outlive this object.
  explicit Halo(AttentionSteps& steps) : steps_(steps) {}

  /// Tells whether keys of layers with this window go straight to the ranks that see them. Instances
  /// that keep keys of others need more than they see, so where any does, all keys go round the
  /// ring.
  static bool goes_straight(const PassRows& rows, kernels::Window window);

  void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) override;
  void run(int64_t layer, const LayerRows& x, const Partial& to) override;
  PathTraits traits() const override {
    return {.stores_all_rows = rows_->stores_all(), .query_type = steps_.query_type()};
  }

 private:
  /// What travels in the layers of a window, and the calls for the own keys and for what comes.
  struct Plan {
    HaloMessages messages;
    AttentionCall own, coming;
  };
  std::vector<parallel::HaloSequence> sequences() const;
  HaloMessages messages(Retention retention, const parallel::Halo& plan) const;
  SequenceRuns runs_that_come(const std::vector<parallel::HaloSequence>& sequences,
                              const parallel::Halo& plan, const KvShape& shape) const;

  AttentionSteps& steps_;
  const PassRows* rows_ = nullptr;
  std::map<kernels::Window, Plan> plans_;  ///< by window
};

}  // namespace pecia::attention
