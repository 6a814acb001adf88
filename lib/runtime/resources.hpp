#pragma once
/// What a run uses: every `auto` of the job resolved against the model, the ranks and the machine.

#include "lib/comm/communicator.hpp"
#include "lib/core/dtype.hpp"
#include "lib/model/weights.hpp"
#include "lib/runtime/inputs.hpp"
#include "lib/runtime/job.hpp"

namespace pecia::runtime {

struct Resources {
  int dp = 1, cp = 1;
  int threads = 1;  ///< of each rank
  DType kv_dtype = DType::fp32;
  int64_t kv_tokens = 0;  ///< slots on each rank
  int64_t max_sequences = 1;
  int64_t max_batch_tokens = 1;
};

/// Threads of this rank: OMP_NUM_THREADS if set, else the cores it is bound to, divided among the
/// ranks of its host when they are bound to the same. Collective over `world`.
int threads_per_rank(comm::Communicator& world);

/// dp × cp = the number of ranks. InputError when that cannot be, Unsupported when cp ranks cannot
/// keep reproducible: layout.
void resolve_grid(const Job& job, int num_ranks, Resources& resources);

/// The element type that a job's word means. Unsupported, naming `key`, for those without one here.
DType dtype_of(Precision precision, std::string_view key);

/// New tokens of a prefill pass: the job's, or as many as keep the activations of a rank near 128
/// MB; with reproducible: layout, those of one rank alone, on any number of ranks.
int64_t resolve_batch_tokens(const Job& job, const model::ModelConfig& config, int cp);

/// KV slots on each rank: what kv.memory holds, or (auto) what 80 % of the memory that is free on
/// the host holds, shared by its ranks; never more than the job's requests can use at a time.
/// InputError when not one token fits. `inputs` on at least one rank, null elsewhere. Collective
/// over `world`.
int64_t resolve_kv_tokens(const Job& job, const model::ModelConfig& config, const Inputs* inputs,
                          const Resources& resources, comm::Communicator& world);

/// kv_dtype (auto: as the weights), max_sequences, max_batch_tokens and kv_tokens. Collective over
/// `world`.
void resolve_memory(const Job& job, const model::ModelConfig& config, const model::Weights& weights,
                    const Inputs* inputs, Resources& resources, comm::Communicator& world);

}  // namespace pecia::runtime
