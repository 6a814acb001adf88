// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run uses: every `auto` of the job is resolved from the model, the ranks and the machine.

#include <algorithm>
#include <limits>

#include "lib/base/core/dtype.hpp"
#include "lib/base/core/reasons.hpp"
#include "lib/model/weights/device_weights.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/levels.hpp"
#include "lib/ranks/parallel/mode_choice.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/threads.hpp"

namespace pecia::resources {

struct Resources {
  int dp = 1, cp = 1, sp = 1, tp = 1, ep = 1;
  int pp = 1;                                ///< stages of layers, each of cp · sp · tp ranks
  bool elastic = false;                      ///< teams of the cp instances change from pass to pass
  int min_instances = 1, max_instances = 1;  ///< of a request, if elastic
  /// Of the cp instances the last ones, this number, answer, and the others read for them
  /// (parallel.phases: apart); 0: all do both. Then `elastic` is true.
  int answering = 0;
  bool fixed_parts = false;  ///< those that read are one team, and so are those that answer
  job::TeamScheduler scheduler = job::TeamScheduler::greedy;  ///< of elastic teams
  job::Objective objective = job::Objective::throughput;
  parallel::PrefillMode prefill = parallel::PrefillMode::single;
  parallel::DecodeMode decode = parallel::DecodeMode::single;
  std::optional<parallel::AttentionExchange>
      ring;                                 ///< absent: no ring, or chosen by rule for each chunk
  std::optional<int64_t> shift_threshold;   ///< absent: there is no shift, or the rule chooses
  std::optional<int64_t> gather_threshold;  ///< as in parallel::PassModes
  std::optional<parallel::SparseSetting> sparse;  ///< prompts are attended by levels
  Reasons reasons;                                ///< for what was auto
  Threads threads;
  bool gpus = false;          ///< every rank computes on a GPU
  std::optional<DType> wire;  ///< type in which activations travel; absent: wire_of decides
  DType kv_dtype = DType::fp32;
  int64_t kv_tokens = 0;  ///< slots on each rank
  /// Slots on each rank in layers with a sliding window, which then keep recent tokens alone
  /// (model/attention/recent_slots.hpp); 0: all layers keep all tokens.
  int64_t kv_recent_tokens = 0;
  int64_t max_sequences = 1;
  int64_t max_batch_tokens = 1;
  /// States of recurrent layers that each rank has room for (most_states); 0: there are no such layers.
  int64_t states = 0;

  parallel::Degrees degrees() const { return {cp, sp, tp, ep}; }  ///< of a stage
  int replica_ranks() const { return pp * cp * sp * tp; }
  /// Instances that a sequence's tokens are shared out to in equal parts.
  int shares() const { return elastic ? 1 : cp; }
  /// New tokens of a pass of `instances` instances, at most.
  int64_t batch_tokens_of_team(int instances) const {
    const int times = elastic ? instances : 1;
    return std::min(max_batch_tokens, std::numeric_limits<int64_t>::max() / times) * times;
  }
  int level_parts() const { return parallel::level_parts(cp, tp); }
  /// The places of the ranks by which levels cut a sequence, of the places of a replica's ranks.
  std::vector<comm::RackServerGpu> level_places(std::span<const comm::RackServerGpu> replica) const;
  /// New tokens from which on a chunk of a prompt is attended by levels; absent: none is.
  std::optional<int64_t> levels_from() const {
    if (!sparse || level_parts() == 1) return {};
    return level_parts() * parallel::SparseSetting::least_rows;
  }
};

/// Takes the shares that a job names: one for all layers, or one for each layer and their mean.
void set_drops(const job::DropSetting& drop, parallel::SparseSetting& setting);

/// Resolves degrees and modes, before any weight is read. dp × pp × cp × sp × tp is the number of ranks,
/// and parallel::mode_table has the pair of modes for these degrees and this model. With sparse
/// attention the ranks of sp have parts of the tokens, as those of cp, and count as such. With tp
/// alone, levels have one micro-partition, as nothing travels for them. Throws
/// InputError naming key, value, reason and the nearest legal setting where there is no solution.
void resolve_grid(const job::Job& job, const model::ModelConfig& config, int num_ranks,
                  Resources& resources);

/// Whether some of the instances could read for others (parallel.phases: apart): there are two or more,
/// and nothing in the job forbids it.
bool may_be_apart(const job::Job& job, const model::ModelConfig& config,
                  const Resources& resources);
/// Whether these resources, resolved from parallel.cp: auto, could be elastic as well: they have
/// several instances, the job names no mode, and nothing else of it needs a ring.
bool may_become_elastic(const job::Job& job, const model::ModelConfig& config,
                        const Resources& resources);

/// "ring/pass_kv+pass_q", "ulysses+shift", "single": how prefill and decode run, in the words of
/// the results. `ring`: what was chosen where the resources leave it open; "sp_tp" where passes with
/// fewer tokens than gather_threshold are.
std::string mode_name(const Resources& resources, std::string_view ring = "auto");

/// The figures of a model that parallel's table and rules need.
parallel::ModelShape shape_of(const model::ModelConfig& config);

/// The element type that the job's word stands for.
DType dtype_of(job::Precision precision);

/// The type in which the layers' matrices are held: the job's, or as the model says it is stored.
DType held_dtype(const job::Job& job, const model::ModelConfig& config);

/// Bytes of a rank's activations in the largest pass, by which max_batch_tokens: auto is planned.
/// On GPUs they include the buffers of a library for attention.
int64_t activation_bytes(bool gpus);

/// New tokens of a prefill pass whose rows are cut over `row_ranks` ranks: the job's number, or
/// (auto) as many as keep a rank's activations near activation_bytes, but enough to fill the experts
/// of a mixture and to pay for keys that each pass makes of latents. With reproducible: layout, auto
/// takes what one rank alone would, on any number of ranks.
int64_t resolve_batch_tokens(const job::Job& job, const model::ModelConfig& config, int row_ranks,
                             bool gpus = false);

/// Bytes of a cached token on a rank that holds it: the rank's share of the KV heads, all layers of the
/// stage that caches most.
int64_t kv_bytes_of_rank(const model::ModelConfig& config, const Resources& resources);

/// How the job's model.dtype rounds the layers' matrices at load.
model::Quantize quantize_of(const job::Job& job);

/// What becomes of matrices that the checkpoint stores as codes. They stay codes, unless model.dtype
/// names a type of numbers. `cut_ranks`: sp · tp. `gpus`: every rank computes on a GPU.
model::CodeUse code_use(const job::Job& job, const model::ModelConfig& config, int cut_ranks,
                        int ep, bool gpus);
/// The same on resources whose degrees are decided.
model::CodeUse code_use(const job::Job& job, const model::ModelConfig& config,
                        const Resources& resources);

/// Throws InputError where a rank lacks room for its own copy of the weights and a pass's
/// activations. `free_bytes` is what it has free on its GPU, or its share of the host's memory. The
/// message names the degree of tensor parallelism that would have room.
void require_room(const model::WeightViews& weights, model::Quantize quantize, int64_t free_bytes,
                  bool gpu);

/// Throws InputError naming the first width that tensor cores do not support in fp8, if any.
void require_fp8_widths(const model::ModelConfig& config, const Resources& resources);

/// Bytes that are free in the host's memory for each of its ranks. Collective over `world`.
int64_t free_host_bytes(comm::Communicator& world);

/// Sequences that a replica runs at once: the job's number, or (auto) the result of
/// sequences_at_once for the requests of `inputs` (null: one). That uses arithmetic alone, so a job
/// always runs in the same batches: reading the weights is taken to last as long as 32 rows, on
/// GPUs 300 (FLOPs per byte of a CPU or GPU).
int64_t resolve_max_sequences(const job::Job& job, const model::ModelConfig& config,
                              const batch::Inputs* inputs, const Resources& resources);

/// What a batch asks for, all requests together.
struct BatchWork {
  int64_t requests = 0, answers = 0;  ///< answers: turns that make tokens
  int64_t prompt_tokens = 0, answer_tokens = 0;
  double flops = 0;  ///< with attention
};
/// The automatic number above, for any batch. `resources`: with degrees and max_batch_tokens.
int64_t sequences_for(const BatchWork& work, const model::ModelConfig& config,
                      const Resources& resources);

/// States of recurrent layers that a rank has at a time, at most: of sequences that run, and of the
/// beginnings that forks share, of which there are no more (SchedulerState::forks_under_way). With
/// drafts, a sequence that runs may have the state before its last pass as well. 0: the model has no
/// such layers. `inputs` (null: no forks). `resources`: with max_sequences.
int64_t most_states(const job::Job& job, const model::ModelConfig& config,
                    const batch::Inputs* inputs, const Resources& resources);
/// Bytes of these states on a rank, beside its KV slots.
int64_t state_memory_of_rank(const model::ModelConfig& config, const Resources& resources);

/// Upper bound on the KV slots that the request needs on each rank; if elastic, on all instances
/// together.
int64_t most_slots(const job::Job& job, const batch::Inputs& inputs,
                   const batch::InputRequest& request, const Resources& resources);

/// KV slots on each rank.
struct KvSlots {
  int64_t tokens = 0;         ///< Resources::kv_tokens
  int64_t recent_tokens = 0;  ///< Resources::kv_recent_tokens
  int64_t room = 0;           ///< `tokens` if more were wanted

  void write_to(Resources& resources) const {
    resources.kv_tokens = tokens, resources.kv_recent_tokens = recent_tokens;
  }
};

/// The slots for up to `wanted` tokens at a time in `memory` bytes of a rank. Layers with a window
/// keep recent tokens alone if this makes room for more of the wanted tokens or takes less memory,
/// and the job, its modes and `resources` allow it. `resources`: with degrees, modes, kv_dtype,
/// max_batch_tokens and max_sequences.
KvSlots kv_slots(const job::Job& job, const model::ModelConfig& config, const Resources& resources,
                 int64_t memory, int64_t wanted);

/// Bytes of the KV cache on a rank, by kv_tokens and kv_recent_tokens.
int64_t kv_memory_of_rank(const model::ModelConfig& config, const Resources& resources);

/// Bytes of free memory that a rank's KV cache leaves to others when kv.memory does not say its size.
/// On GPUs these are 2 GiB, for the buffers of libraries and NCCL; what passes need is not among
/// `free_bytes` there. On CPUs, and where 2 GiB are more than that, they are a fifth.
int64_t reserved_bytes(int64_t free_bytes, bool gpus);

/// KV slots on each rank: what kv.memory holds, or (auto) `free_bytes` without reserved_bytes. It is
/// never more than the requests of `inputs` (null: none) can use at a time. `free_bytes`: free where
/// a rank computes, on the rank that has least. Throws InputError when not one token fits.
KvSlots resolve_kv_slots(const job::Job& job, const model::ModelConfig& config,
                         const batch::Inputs* inputs, const Resources& resources,
                         int64_t free_bytes);

/// The type in which activations travel between ranks: the job's, or (auto) bf16 where products take
/// operands of bf16 on all ranks. With reproducible: layout it is fp32, since rounded sums would
/// depend on the number of ranks.
DType wire_of(const job::Job& job, DType operands);

/// The type of cached keys and values: the job's, or (auto) the resident type of the layers'
/// matrices, and the embedding's type where these are rounded to codes.
DType resolve_kv_dtype(const job::Job& job, DType matrices, DType embedding);

/// What memory is settled by, the same on all ranks.
struct MemoryFacts {
  DType matrices, embedding;  ///< resident types of the weights
  int64_t free_bytes;         ///< as for resolve_kv_slots
};

/// What settle_memory decides.
struct Memory {
  DType kv_dtype = DType::fp32;
  int64_t max_batch_tokens = 1, max_sequences = 1;
  int64_t states = 0;
  KvSlots kv;

  void write_to(Resources& resources) const;
};

/// Settles the types and sizes of caches and batches on resources whose degrees and modes are
/// decided. Throws as resolve_kv_slots.
Memory settle_memory(const job::Job& job, const model::ModelConfig& config,
                     const Resources& resources, const MemoryFacts& facts,
                     const batch::Inputs* inputs);

}  // namespace pecia::resources
