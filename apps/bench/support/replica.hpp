// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A replica that a benchmark drives pass by pass. It has the loop of a run (plan broadcast,
/// executed, outcomes gathered), but no files or scheduler.

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lib/engine/execute/phantom_rank.hpp"
#include "lib/engine/execute/replica.hpp"
#include "lib/model/weights/device_weights.hpp"
#include "lib/model/weights/shared_panels.hpp"
#include "lib/model/weights/shift_panels.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::bench {

/// A checkpoint's configuration and mapped weights.
struct LoadedModel {
  std::filesystem::path folder;
  model::ModelConfig config;
  std::optional<DType> dtype;  ///< of the weights; absent: as they are stored
  model::Weights weights;      ///< not cut
};

/// Collective; fails on all ranks together.
std::unique_ptr<LoadedModel> load_model(comm::Communicator& world,
                                        const std::filesystem::path& folder,
                                        std::optional<DType> dtype = {});

struct ReplicaSettings {
  job::Job job;                    ///< `input` and `output` have no meaning
  resources::Resources resources;  ///< of the ranks that run a request together
  parallel::Sharding sharding = parallel::Sharding::base;
  parallel::AttentionExchange prefill_ring = parallel::AttentionExchange::pass_kv;
  parallel::AttentionExchange decode_ring = parallel::AttentionExchange::pass_q;
  int masters = 0;  ///< instances with rows in a decode pass; 0: all

  /// The virtual ranks that all instances together play; 0 without reproducible: layout.
  int virtual_ranks() const;
  /// Lets this number of sequences have states of recurrent layers, and a further one begin.
  void make_room_for_states(const model::ModelConfig& config, int64_t sequences);
  /// The same for one rank alone.
  ReplicaSettings of_one_rank() const;
};

/// Makes the place where a rank of the replica computes. Collective.
resources::ComputePlace make_place(const ReplicaSettings& settings, const LoadedModel& model,
                                   comm::Communicator& ring);

/// Sampled tokens by sequence, in the order of the call. On rank 0; empty elsewhere.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float>
      logprobs;  ///< [sequences, vocab] by token id where the job asks for all, else empty
};

/// Every call is collective over the ring, with the same arguments on every rank.
class Replica {
 public:
  using SequenceId = parallel::SequenceId;

  /// `ring` and `model` outlive this object.
  Replica(comm::Communicator& ring, const LoadedModel& model, const ReplicaSettings& settings);

  /// KV slots that each rank needs for a prompt of `tokens` and `steps` decoded tokens.
  static int64_t slots(const ReplicaSettings& settings, int64_t tokens, int64_t steps);

  /// Begins a sequence, feeds its prompt and samples one token greedily.
  Answer prefill(SequenceId sequence, std::span<const int32_t> tokens);

  /// Feeds more tokens to a sequence and samples one greedily. It uses the slots that were reserved
  /// when the sequence was filled.
  Answer extend(SequenceId sequence, std::span<const int32_t> tokens);

  /// Begins a sequence whose `tokens` are cached as if they had been fed. Their keys and values are
  /// random numbers that depend on seed, sequence and position alone (on a GPU on the slot alone),
  /// since the cost of a decode step does not depend on them. Slots are reserved for `later` tokens
  /// more; see slots().
  void fill(SequenceId sequence, int64_t tokens, int64_t later, uint64_t seed);

  /// Feeds one token of each sequence and samples the next ones. `tokens` is read on rank 0.
  Answer decode(std::span<const SequenceId> sequences, std::span<const int32_t> tokens);

  /// A new sequence and its prompt.
  struct Prompt {
    SequenceId sequence = 0;
    std::vector<int32_t> tokens = {};
  };

  /// Feeds one token of each sequence and, in the same pass, whole prompts. It samples a token for
  /// each of them, first for the sequences. `tokens` is read on rank 0.
  Answer step_and_prefill(std::span<const SequenceId> sequences, std::span<const int32_t> tokens,
                          std::span<const Prompt> prompts);

  /// Frees the sequence's KV with the next pass.
  void remove(SequenceId sequence);
  /// Frees what was removed now, with a pass that does nothing else.
  void release_removed();

  const attention::Compute& compute() const { return rank_.compute(); }
  /// The type of rows in products with the layers' weights.
  DType operands() const { return rank_.model().operand_type(); }
  const report::Recorder& recorder() const { return recorder_; }
  /// Traffic of this rank, and bytes that its phantom has sent, in all passes so far.
  comm::Traffic traffic() const { return traffic_of(rank_.groups()); }
  const execute::SentBytes& expected();
  int64_t passes() const { return next_number_; }
  /// FLOP/s of attention and B/s round the ring, measured now as a run measures them. Collective.
  parallel::RingRates measure_rates();
  /// The most new tokens of a pass for which the rule chooses the shift configuration, by rates
  /// measured now. Collective.
  int64_t measure_shift_threshold(int64_t limit);

 private:
  const model::WeightViews& stored_weights() const;
  const model::WeightViews& weights() const;  ///< where this rank uses them
  void fill_cache();
  void fill_scales(const TensorView& scales);
  Answer feed(SequenceId sequence, int64_t cached, std::span<const int32_t> tokens);
  void begin(SequenceId sequence, int64_t length);
  schedule::PlanItem chunk(SequenceId sequence, int64_t first,
                           std::span<const int32_t> tokens) const;
  void add_steps(schedule::Plan& plan, std::span<const SequenceId> sequences,
                 std::span<const int32_t> tokens, int masters) const;
  schedule::Plan next_plan(parallel::AttentionExchange ring);
  Answer execute(const schedule::Plan& plan);
  std::vector<int64_t> on_each(int64_t slots) const;

  comm::Communicator& ring_;
  const LoadedModel& model_;
  ReplicaSettings settings_;
  std::optional<model::Weights> cut_;  ///< present with TP
  resources::ComputePlace place_;
  std::optional<model::DeviceWeights> own_;
  std::unique_ptr<model::SharedPanels> panels_;
  std::unique_ptr<model::ShiftPanels> shift_panels_;
  report::Recorder recorder_;
  execute::Replica rank_;
  std::vector<SequenceId> removed_;
  std::vector<schedule::NewSequence> added_;
  std::vector<schedule::TurnStart> started_;
  int64_t next_number_ = 0;
  bool cache_is_filled_ = false;  ///< used on a GPU
  execute::PhantomRank phantom_;
  /// Work that the phantom has still to do. It is put off, so that measured times exclude it.
  std::vector<std::function<void(execute::Replica&)>> of_phantom_;
};

/// Ids below `vocab`, as a function of the seed.
std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed);

}  // namespace pecia::bench
