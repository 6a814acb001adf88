// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A rank of a replica that is not here. Its Replica runs plans as it would there, without
/// arithmetic, memory or peers. It counts exactly what the rank sends, computes and stores, for any
/// rank of any grid and for any model of which the configuration is known.

#include "kernels/phantom/phantom.hpp"
#include "lib/engine/execute/replica.hpp"
#include "lib/model/weights/phantom_weights.hpp"
#include "lib/ranks/comm/phantom.hpp"

namespace pecia::execute {

/// Is told all that a phantom does, in its order.
class PhantomWatcher : public comm::PhantomListener {
 public:
  virtual void computed(const kernels::OpWork& op) = 0;
  virtual void copied(int64_t bytes) = 0;
};

struct PhantomSettings {
  int ranks = 1,
      rank = 0;  ///< in the replica; replica.stages, sp and tp say how ranks are laid out
  DType weights = DType::bf16;  ///< type of tensors that are not codes
  model::Quantize quantize = model::Quantize::nothing;
  bool keeps_codes = true;  ///< model::CodeUse::kept
  bool gpus = false;        ///< ranks compute on GPUs
  device::DeviceInfo device = {"phantom", 0, 1, "", ""};
  int64_t memory_bytes = 0;            ///< memory of the rank's device
  kernels::BackendTraits traits = {};  ///< of the backend on the device
  Replica::Settings replica;
  PhantomWatcher* watcher = nullptr;  ///< outlives the rank, if there is one
};

/// Bytes that a rank sends in passes: within layers, and outside of layers for an embedding table
/// and logits that are cut over ranks.
struct SentBytes {
  int64_t in_layers = 0, outside = 0;

  int64_t total() const { return in_layers + outside; }
};

class PhantomRank : private comm::PhantomListener {
 public:
  /// `config`: of the whole model, or of the rank's stage. Throws SystemError where weights, keys and
  /// values need more memory than the device has; execute throws it where a pass does.
  PhantomRank(const model::ModelConfig& config, const PhantomSettings& settings);

  Replica& replica() { return replica_; }
  /// Of the rank's stage.
  const model::ModelConfig& config() const { return config_; }
  schedule::Outcome execute(const schedule::Plan& plan) { return replica_.execute(plan); }

  /// What this rank has sent in all its groups so far.
  comm::Traffic traffic() const { return attention::traffic_of(replica_.groups()); }
  /// The same bytes, divided into those within and outside of layers.
  const SentBytes& sent() const { return sent_; }
  /// Sums over all ops so far; its name and dtype have no meaning.
  const kernels::OpWork& work() const { return work_; }
  /// What the rank does now: its span, phase and layer.
  const Activity& activity() const { return activity_; }
  /// Bytes of weights, KV cache, and the workspaces that passes have grown.
  int64_t peak_bytes() const { return device_.peak_bytes(); }

 private:
  const model::ModelConfig config_;
  int64_t started(const comm::PhantomStart& start) override;
  void waited(int64_t number) override;

  PhantomWatcher* watcher_;
  int64_t starts_ = 0;
  kernels::OpWork work_{"all", DType::fp32};
  SentBytes sent_;
  device::PhantomDevice device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<kernels::Backend> backend_;
  Activity activity_;
  report::Recorder recorder_;
  std::unique_ptr<comm::Communicator> ranks_;
  model::PhantomWeights weights_;
  Replica replica_;
};

}  // namespace pecia::execute
