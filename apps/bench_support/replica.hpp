// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A replica that a benchmark drives pass by pass: the loop of a run (plan broadcast, executed,
/// outcomes gathered) without job, files and scheduler.

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lib/execute/phantom_rank.hpp"
#include "lib/execute/replica_rank.hpp"
#include "lib/model/device_weights.hpp"
#include "lib/parallel/ring_rule.hpp"
#include "lib/resources/compute_place.hpp"

namespace pecia::bench {

/// A checkpoint's configuration and mapped weights.
struct LoadedModel {
  std::filesystem::path folder;
  model::ModelConfig config;
  model::Weights weights;  ///< whole
};

/// Collective; fails on all ranks together.
std::unique_ptr<LoadedModel> load_model(comm::Communicator& world,
                                        const std::filesystem::path& folder);

struct ReplicaSettings {
  int sp = 1, tp = 1;  ///< cp is what is left of the ranks
  parallel::Sharding sharding = parallel::Sharding::base;
  job::Job job;  ///< backend, allow_gpu_sharing and whether model.dtype is fp8 are read
  int threads = 1;
  DType kv_dtype = DType::fp32;
  int64_t kv_tokens = 0;     ///< slots on each rank
  int64_t batch_tokens = 1;  ///< new tokens of a prefill pass, all ranks together
  parallel::Ring prefill_ring = parallel::Ring::pass_kv;
  parallel::Ring decode_ring = parallel::Ring::pass_q;
  int logprobs = 0;  ///< 0, or −1: the whole vocabulary's, for checks
};

/// Where a rank of such a replica computes. Collective.
resources::ComputePlace make_place(const ReplicaSettings& settings, comm::Communicator& ring);

/// What was sampled, by sequence in the order asked. On rank 0; empty elsewhere.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  ///< [sequences, vocab] by token id with logprobs −1, else empty
};

/// Every call is collective over the ring, with the same arguments on every rank.
class Replica {
 public:
  using SequenceId = parallel::SequenceId;

  /// `ring` and `model` outlive this object.
  Replica(comm::Communicator& ring, const LoadedModel& model, const ReplicaSettings& settings);

  /// KV slots on each of `ranks` ranks for `tokens` of a prompt, and `steps` decoded after it.
  static int64_t slots(const ReplicaSettings& settings, int ranks, int64_t tokens, int64_t steps);

  /// A new sequence; feeds its prompt and samples one token greedily.
  Answer prefill(SequenceId sequence, std::span<const int32_t> tokens);

  /// Feeds more tokens to a sequence, and samples one greedily. Its slots are those reserved when
  /// it was filled.
  Answer extend(SequenceId sequence, std::span<const int32_t> tokens);

  /// A new sequence whose `tokens` are cached as if fed, their keys and values random numbers that
  /// depend on seed, sequence and position alone: what a decode step costs does not depend on what
  /// they are (and on a GPU on the slot alone). Slots are reserved for `later` tokens more, see
  /// slots().
  void fill(SequenceId sequence, int64_t tokens, int64_t later, uint64_t seed);

  /// One token of each sequence in, the next ones out. `tokens` is read on rank 0.
  Answer decode(std::span<const SequenceId> sequences, std::span<const int32_t> tokens);

  /// Frees the sequence's KV with the next pass.
  void remove(SequenceId sequence);

  const context::Compute& compute() const { return rank_.compute(); }
  /// The type of rows in products with the layers' weights.
  DType operands() const { return worker_.model().operand_type(); }
  const report::Recorder& recorder() const { return recorder_; }
  /// What this rank has sent in all passes so far, and what a phantom of it has.
  comm::Traffic traffic() const { return traffic_of(worker_.groups()); }
  const execute::SentBytes& expected();
  int64_t passes() const { return next_number_; }
  /// FLOP/s of attention and B/s round the ring now, measured as a run measures them. Collective.
  parallel::RingRates measure_rates();
  /// The most new tokens of a pass that the rule runs in the shift configuration, with the rates of
  /// now. Collective.
  int64_t measure_shift_threshold(int64_t limit);

 private:
  const model::WeightViews& stored_weights() const;
  const model::WeightViews& weights() const;  ///< where they are used
  void fill_cache();
  void fill_scales(const TensorView& scales);
  Answer feed(SequenceId sequence, int64_t cached, std::span<const int32_t> tokens);
  schedule::Plan next_plan(parallel::Ring ring);
  Answer execute(const schedule::Plan& plan);
  /// Slots freed by remove() are free only after a pass; fill() needs them at once.
  void release_removed();

  comm::Communicator& ring_;
  const LoadedModel& model_;
  ReplicaSettings settings_;
  std::optional<model::Weights> cut_;  ///< with TP
  resources::ComputePlace place_;
  std::optional<model::DeviceWeights> own_;
  report::Recorder recorder_;
  execute::ReplicaRank rank_;
  execute::Worker& worker_ = rank_.worker();
  std::vector<SequenceId> removed_;
  std::vector<schedule::NewSequence> added_;
  std::vector<schedule::TurnStart> started_;
  int64_t next_number_ = 0;
  bool cache_is_filled_ = false;  ///< on a GPU
  execute::PhantomRank phantom_;
  /// What it has to do still: it takes no time from what is measured.
  std::vector<std::function<void(execute::Worker&)>> of_phantom_;
};

/// Ids below `vocab`, a function of the seed.
std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed);

}  // namespace pecia::bench
