#pragma once
/// One rank's part of a replica, put together: KV cache, attention, model, executor.

#include "lib/runtime/executor.hpp"

namespace pecia::runtime {

class Worker {
 public:
  struct Settings {
    DType kv_dtype = DType::fp32;
    int64_t kv_tokens = 0;                  ///< slots on this rank
    int logprobs = 0, prompt_logprobs = 0;  ///< as in job files
  };

  /// `replica`: the ranks that run a request together. All references outlive this object.
  Worker(comm::Communicator& replica, const model::ModelConfig& config,
         const model::Weights& weights, kernels::Backend& backend, device::Stream& stream,
         report::Recorder& recorder, const Settings& settings)
      : cache_({config.layers, config.num_kv_heads, config.head_dim, settings.kv_dtype},
               settings.kv_tokens),
        attention_(replica, backend, stream, recorder, cache_, config.num_heads, config.windows),
        model_(config, weights, backend, stream, recorder),
        executor_({replica.rank(), replica.size(), config.vocab, settings.logprobs,
                   settings.prompt_logprobs},
                  model_, attention_, backend, stream, recorder) {}

  /// Collective over the replica: every rank executes the same plan.
  Outcome execute(const Plan& plan) { return executor_.execute(plan); }

  context::KvCache& cache() { return cache_; }
  context::RingAttention& attention() { return attention_; }

 private:
  context::KvCache cache_;
  context::RingAttention attention_;
  model::Model model_;
  Executor executor_;
};

}  // namespace pecia::runtime
