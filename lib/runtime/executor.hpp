#pragma once
/// One rank's part of a plan: rows through the model, sampling of the rows it owns.

#include <map>

#include "lib/model/model.hpp"
#include "lib/runtime/plan.hpp"

namespace pecia::runtime {

class Executor {
 public:
  struct Settings {
    int rank = 0, ring_size = 1;
    int64_t vocab = 0;
    int logprobs = 0, prompt_logprobs = 0;  ///< as in job files
  };

  /// All references outlive this object.
  Executor(const Settings& settings, model::Model& model, context::RingAttention& attention,
           kernels::Backend& backend, device::Stream& stream, report::Recorder& recorder);

  /// Collective over the ring: every rank executes the same plan.
  Outcome execute(const Plan& plan);

 private:
  /// Tokens of a sequence, kept only where penalties ask for them.
  struct History {
    std::vector<int32_t> tokens;
  };
  void begin(const Plan& plan);
  LogProbs sample(const Plan& plan, const TensorView& hidden, const std::vector<int32_t>& items);
  LogProbs score(const Plan& plan, const TensorView& hidden, const std::vector<int32_t>& targets);
  TensorView logits(const TensorView& hidden);
  int64_t tile_rows() const;

  Settings settings_;
  model::Model& model_;
  context::RingAttention& attention_;
  kernels::Backend& backend_;
  device::Stream& stream_;
  report::Recorder& recorder_;
  std::map<int64_t, TurnStart> turns_;
  std::map<int64_t, History> histories_;
  device::Buffer logits_;
};

}  // namespace pecia::runtime
