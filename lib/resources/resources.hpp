// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run uses: every `auto` of the job resolved against the model, the ranks and the machine.

#include "lib/batch/inputs.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/core/dtype.hpp"
#include "lib/job/job.hpp"
#include "lib/model/device_weights.hpp"
#include "lib/parallel/mode_choice.hpp"
#include "lib/resources/threads.hpp"
#include "lib/schedule/pass_times.hpp"

namespace pecia::resources {

struct Resources {
  int dp = 1, cp = 1, sp = 1, tp = 1;
  parallel::PrefillMode prefill = parallel::PrefillMode::single;
  parallel::DecodeMode decode = parallel::DecodeMode::single;
  std::optional<parallel::RingMode> ring;  ///< absent: by rule, turn by turn; or no ring
  std::optional<int64_t> shift_threshold;  ///< absent: by rule; or no shift
  std::string why;                         ///< reasons of the modes that were auto; may be empty
  Threads threads;
  bool gpus = false;  ///< every rank computes on one
  DType kv_dtype = DType::fp32;
  int64_t kv_tokens = 0;  ///< slots on each rank
  int64_t max_sequences = 1;
  int64_t max_batch_tokens = 1;

  parallel::Degrees degrees() const { return {cp, sp, tp}; }
};

/// Degrees and modes, before any weight is read: dp × cp × sp × tp = the number of ranks, and a
/// pair of modes that parallel::mode_table has for them and this model. InputError, naming key,
/// value, reason and the nearest legal setting, when that cannot be.
void resolve_grid(const job::Job& job, const model::ModelConfig& config, int num_ranks,
                  Resources& resources);

/// "ring/pass_kv+pass_q", "ulysses+shift", "single": how prefill and decode run, as results have
/// it. `ring`: what was taken where the resources leave it open.
std::string mode_name(const Resources& resources, std::string_view ring = "auto");

/// What parallel's table and rules want to know of a model.
parallel::ModelShape shape_of(const model::ModelConfig& config);

/// The element type that a job's word means.
DType dtype_of(job::Precision precision);

/// Activations of a rank in the largest pass, as the job's auto plans them; on GPUs with what a
/// library of attention takes beside.
int64_t activation_bytes(bool gpus);

/// New tokens of a prefill pass whose rows are cut over `row_ranks` ranks: the job's, or as many as
/// keep the activations of a rank near activation_bytes; with reproducible: layout, those of one
/// rank alone, on any number of ranks.
int64_t resolve_batch_tokens(const job::Job& job, const model::ModelConfig& config, int row_ranks,
                             bool gpus = false);

/// Bytes of a cached token on a rank that holds it: its share of the KV heads, all layers.
int64_t kv_bytes_of_rank(const model::ModelConfig& config, const Resources& resources);

/// What the job's model.dtype makes of the layers' matrices at load.
model::Quantize quantize_of(const job::Job& job);

/// InputError where a rank that has `free_bytes`, on a GPU or of its host's memory, has no room for
/// its own copy of the weights and a pass's activations, with the degree of tensor parallelism that
/// would have it.
void require_room(const model::WeightViews& weights, model::Quantize quantize, int64_t free_bytes,
                  bool gpu);

/// InputError naming the first width that tensor cores do not take in fp8, where there is one.
void require_fp8_widths(const model::ModelConfig& config, const Resources& resources);

/// Bytes that the host has free for each of its ranks. Collective over `world`.
int64_t free_host_bytes(comm::Communicator& world);

/// Sequences that a replica runs at once: the job's, or as sequences_at_once says of its requests,
/// from arithmetic alone, so that a job always runs in the same batches. The weights are taken to
/// be read in the time of 32 rows, on GPUs of 300 (a CPU's or GPU's FLOPs per byte). `inputs` as
/// below. Collective over `world`.
int64_t resolve_max_sequences(const job::Job& job, const model::ModelConfig& config,
                              const batch::Inputs* inputs, const Resources& resources,
                              comm::Communicator& world);

/// At most so many KV slots on each rank does the request need.
int64_t most_slots(const job::Job& job, const batch::Inputs& inputs,
                   const batch::InputRequest& request, const Resources& resources);

/// KV slots on each rank: what kv.memory holds, or (auto) 80 % of `free_bytes`, which the rank has
/// where it computes; never more than the job's requests can use at a time. InputError when not one
/// token fits. `inputs` on at least one rank, null elsewhere. Collective over `world`.
int64_t resolve_kv_tokens(const job::Job& job, const model::ModelConfig& config,
                          const batch::Inputs* inputs, const Resources& resources,
                          int64_t free_bytes, comm::Communicator& world);

/// Of cached keys and values: the job's; auto: as the matrices of the layers, as they are held, or
/// beside rounded ones as the embedding.
DType resolve_kv_dtype(const job::Job& job, DType matrices, DType embedding);

/// kv_dtype (auto: as the weights, beside fp8 as the embedding), max_sequences, max_batch_tokens
/// and kv_tokens. Collective over `world`.
void resolve_memory(const job::Job& job, const model::ModelConfig& config,
                    const model::WeightViews& weights, const batch::Inputs* inputs,
                    int64_t free_bytes, Resources& resources, comm::Communicator& world);

/// How long passes of a replica may take, before any was measured: the model's operations and bytes
/// at shares of `peak_flops`, of all ranks, that such machines commonly reach. `weights`: of the
/// layers' matrices.
schedule::PassTimes estimated_times(const model::ModelConfig& config, const Resources& resources,
                                    DType weights, double peak_flops);

}  // namespace pecia::resources
