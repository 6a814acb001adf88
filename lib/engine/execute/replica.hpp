// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank of a replica: its groups, KV cache, attention, model and pass runner. Runs, benchmarks,
/// tests and phantoms use it alike.

#include <memory>
#include <string>

#include "lib/engine/execute/pass_runner.hpp"
#include "lib/model/recurrence/state_snapshots.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::execute {

class Replica {
 public:
  struct Settings {
    int stages = 1;      ///< of layers; the replica's ranks are cut into these first
    int sp = 1, tp = 1;  ///< cp takes the rest of a stage's ranks
    DType kv_dtype = DType::fp32;
    int64_t kv_tokens = 0;  ///< slots on this rank
    /// Slots on this rank in layers with a sliding window, which keep recent tokens alone; 0: they
    /// keep all tokens. It goes with neither layout_invariant nor sparse, and with teams of all
    /// instances.
    int64_t kv_recent_tokens = 0;
    /// Sequences whose states of recurrent layers this rank has room for, and whether a sequence may
    /// begin with a state that nobody has made: where nobody reads what passes give.
    int64_t states = 0;
    bool states_may_be_any = false;
    int logprobs = 0, prompt_logprobs = 0;         ///< as in job files
    std::vector<comm::RackServerGpu> places = {};  ///< by rank of the replica; empty: on one server
    bool layout_invariant = false;  ///< bits depend on neither cp, sp and tp nor the batch
    std::optional<parallel::SparseSetting> sparse = {};  ///< for passes by levels
    std::shared_ptr<grammar::Grammars> grammars = {};    ///< required where an answer has a shape
    attention::ParkingPlaces parking = {};               ///< for keys that leave the cache
    int ep = 1;  ///< ranks that experts are dealt out over: 1, or sp · tp
    /// The type in which activations travel, fp32 or bf16; absent: bf16 where all ranks' products take
    /// it and layout_invariant allows it.
    std::optional<DType> wire = {};
    bool copies_keys = false;  ///< plans have copies of keys (parallel.phases: apart)
    /// By which routes between servers are chosen: of keys (KvRoutes), and of gathers and scatters by
    /// NCCL (least_block_by_servers). Zeros choose none. The same on every rank.
    parallel::LinkCosts link_costs = {};
  };

  /// What a job and its resources say of the settings. Memory of resources that is not settled yet,
  /// places and grammars are left to the caller.
  static Settings settings_of(const job::Job& job, const resources::Resources& resources);

  /// `ranks`: the ranks that run a request together, in the order of ProcessGrid. `config`: of the
  /// rank's stage (model::stage_of). `weights`: of the stage, cut over TP, in the memory where
  /// `compute` is. All references outlive this object. Collective over
  /// `ranks`.
  Replica(comm::Communicator& ranks, const model::ModelConfig& config,
          const model::WeightViews& weights, const attention::Compute& compute,
          const Settings& settings)
      : Replica(ranks, nullptr, config, weights, compute, settings) {}

  /// `tensors`: the same ranks for tensors in a device's own memory (resources::tensor_group); the
  /// device then times the spans of ops. Null: the transfers of `ranks` are used.
  Replica(comm::Communicator& ranks, std::unique_ptr<comm::Communicator> tensors,
          const model::ModelConfig& config, const model::WeightViews& weights,
          const attention::Compute& compute, const Settings& settings);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// The part of the weights that a rank of the replica holds.
  static parallel::WeightCut weight_cut(int rank, int sp, int tp, int ep = 1,
                                        parallel::Sharding sharding = parallel::Sharding::base);

  /// Collective over the replica: every rank executes the same plan.
  /// `meanwhile`: PassRunner::execute.
  schedule::Outcome execute(const schedule::Plan& plan,
                            const std::function<void()>& meanwhile = {}) {
    return pass_runner_.execute(plan, meanwhile);
  }
  /// Whether execute calls `meanwhile` in passes that compute.
  bool computes_beside_host() const { return compute_.device.info().is_gpu(); }

  /// The executing thread calls `poll` every few tens of microseconds while ops compute and while
  /// the host waits for a GPU. Everything that `poll` uses must last as long as plans are executed.
  void while_computing(std::function<void()> poll);

  const attention::Compute& compute() const { return compute_; }
  /// The library that moves tensors, for the log; "" for tensors in the host's memory.
  std::string tensors_by() const {
    if (!tensors_) return "";
    return tensors_->tensors_by() + (groups_.sums_by.empty() ? "" : "; " + groups_.sums_by);
  }
  const attention::ReplicaGroups& groups() const { return groups_; }
  /// Takes in keys that have come for sequences which others read. Call it while nothing is executed.
  void progress() { attention_.copies().progress(); }
  /// Waits until all keys that are to come or to leave have done so, and rows that go to the next
  /// stage. All ranks do, after the last plan.
  void finish_copies() {
    attention_.copies().finish();
    model_.finish_sends();
  }
  attention::KvCache& cache() { return cache_; }
  attention::Attention& attention() { return attention_; }
  const attention::Attention& attention() const { return attention_; }
  const model::Model& model() const { return model_; }

 private:
  std::unique_ptr<comm::Communicator> tensors_;
  attention::Compute compute_;
  attention::ReplicaGroups groups_;
  attention::KvCache cache_;
  attention::Attention attention_;
  attention::KvFiles kv_files_;
  std::unique_ptr<recurrence::RecurrentStates> states_;    ///< null without recurrent layers
  std::unique_ptr<recurrence::StateSnapshots> snapshots_;  ///< likewise
  attention::KvParking parking_;
  std::unique_ptr<recurrence::StateFiles> state_files_;  ///< likewise
  model::Model model_;
  PassRunner pass_runner_;
  std::function<void()> move_transfers_ = [] {};
};

}  // namespace pecia::execute
