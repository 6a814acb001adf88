// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values go round the team's ring, and each rank attends its rows to those that are here
/// while the next ones are on their way. Instances may keep keys of others as they pass
/// (ranks/parallel/placement.hpp). On a ring of one rank nothing travels.
/// Source: Context Parallelism for Scalable Million-Token Inference, Alg. 2 (pass-KV).

#include "lib/model/attention/attention_path.hpp"

namespace pecia::attention {

class PassKv : public AttentionPath {
 public:
  /// `steps` must outlive this object.
  explicit PassKv(AttentionSteps& steps) : steps_(steps) {}

  void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) override;
  void run(int64_t layer, const LayerRows& x, const Partial& to) override;
  PathTraits traits() const override;
  int64_t bytes_without_window(const PassRows& rows, const KvShape& shape) const override;

 private:
  void plan_messages(int kind);
  std::vector<KeptTokens> kept_of(int source) const;

  AttentionSteps& steps_;
  const PassRows* rows_ = nullptr;
  std::vector<std::vector<AttentionCall>> visits_;  ///< by kind of layer and step
};

}  // namespace pecia::attention
