// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs one rank's part of a pass: rows through the model, sampling of the rows it owns.

#include <functional>
#include <unordered_map>

#include "lib/engine/execute/allowed_tokens.hpp"
#include "lib/engine/execute/shortlists.hpp"
#include "lib/engine/schedule/plan.hpp"
#include "lib/model/attention/kv_files.hpp"
#include "lib/model/attention/kv_parking.hpp"
#include "lib/model/layers/model.hpp"
#include "lib/model/recurrence/state_files.hpp"

namespace pecia::execute {

class PassRunner {
 public:
  struct Settings {
    int instance = 0;   ///< this rank's
    int instances = 1;  ///< of the replica
    int64_t vocab = 0;
    int logprobs = 0, prompt_logprobs = 0;  ///< as in job files
    bool whole_rows = false;  ///< log-sums of whole rows: no cut of the vocabulary affects bits
    std::shared_ptr<grammar::Grammars> grammars = {};  ///< required where an answer has a shape
  };

  /// All references outlive this object. `replica`: the ranks that execute the same plans.
  /// `snapshots`, `state_files`: null without recurrent layers.
  PassRunner(const Settings& settings, comm::Communicator& replica, model::Model& model,
             attention::Attention& attention, const attention::KvFiles& kv_files,
             recurrence::StateSnapshots* snapshots, const recurrence::StateFiles* state_files,
             attention::KvParking& parking, const attention::Compute& compute);

  /// Collective over the replica: every rank executes the same plan. On a GPU `meanwhile` is called
  /// once the work of the layers is enqueued, before the host waits for tokens. Elsewhere, and where
  /// there is nothing to compute, it is not called.
  schedule::Outcome execute(const schedule::Plan& plan,
                            const std::function<void()>& meanwhile = {});

 private:
  /// Tokens of a sequence, kept only where penalties need them.
  struct History {
    std::vector<int32_t> tokens;
  };
  /// Rows of this rank's block that are sampled, have targets or are in pools.
  struct Asked {
    std::vector<int32_t> which;  ///< samples, targets or pools of the plan
    std::vector<int64_t> rows;

    void add(int32_t index, int64_t row) {
      which.push_back(index);
      rows.push_back(row);
    }
  };
  struct AllAsked {
    const Asked &sampled, &targets, &pooled;

    std::vector<int64_t> rows() const;  ///< each once, ascending
  };
  /// A tile of the rows asked about. The ranks that hold parts of the vocabulary compute its logits
  /// together; then each has a share of the rows.
  struct Tile {
    std::span<const int32_t> all;  ///< samples or targets of the plan
    parallel::RowRange mine;       ///< this rank's share of `all`
    schedule::LogProbs& found;     ///< has room for `mine`
  };
  using Evaluate = std::function<void(const TensorView& hidden, const Tile& tile)>;

  void make_room_for(const schedule::KvSaveOrder& order);
  double begin(const schedule::Plan& plan);
  void forget(int64_t sequence);
  void shorten(int64_t sequence, int64_t length);
  void receive(const schedule::Receiving& receiving);

  // pass_runner_kv.cpp
  void park(int64_t sequence);
  double leave(const std::vector<schedule::LeftInstance>& left);
  double resize(const schedule::Plan& plan);
  schedule::KvOutcome save(const schedule::KvSaveOrder& order);
  schedule::KvOutcome restore(const schedule::Plan& plan);
  bool all_ranks_of(const schedule::Plan& plan, bool succeeded);

  void compute(const schedule::Plan& plan, int32_t own_team, schedule::Outcome& outcome,
               const std::function<void()>& meanwhile);
  void find_broken(const schedule::Plan& plan, const AllAsked& all, schedule::Outcome& outcome);

  // pass_runner_pools.cpp
  std::vector<schedule::PooledSum> pool(const Asked& asked);

  // pass_runner_sampling.cpp
  schedule::LogProbs sample(const schedule::Plan& plan, const Asked& asked);
  schedule::LogProbs sample_whole(const schedule::Plan& plan, const Asked& asked);
  schedule::LogProbs sample_short(const schedule::Plan& plan, const Asked& asked,
                                  const ShortlistShape& shape);
  schedule::LogProbs score(const schedule::Plan& plan, const Asked& asked);
  schedule::LogProbs score_short(const schedule::Plan& plan, const Asked& asked,
                                 const ShortlistShape& shape);
  schedule::LogProbs predict(const Asked& asked, int num_top, bool sampled,
                             const Evaluate& evaluate);
  schedule::LogProbs predict_some(const Asked& asked, int num_top, bool sampled,
                                  const Evaluate& evaluate);
  std::optional<ShortlistShape> short_shape(const kernels::SamplingParams& params,
                                            int64_t num_top) const;
  void start_finding_tokens(const schedule::Plan& plan, const Asked& sampled);
  AllowedTokens::Place place_of(const schedule::Plan& plan, int32_t sample) const;
  void restrict(const schedule::Plan& plan, std::span<const int32_t> samples,
                const TensorView& logits, int64_t first_token);
  kernels::SamplingRow sampling_row(const schedule::Plan& plan, int32_t sample) const;
  TensorView whole_logits(const TensorView& hidden, const Tile& tile);
  std::vector<Shortlists> shortlists(const TensorView& hidden, const ShortlistShape& shape,
                                     std::span<const kernels::SamplingRow> rows,
                                     std::span<const int32_t> wanted,
                                     const std::function<void(const TensorView&)>& restrict = {});
  int64_t tile_rows() const;

  Settings settings_;
  comm::Communicator& replica_;
  model::Model& model_;
  attention::Attention& attention_;
  const attention::KvFiles& kv_files_;
  recurrence::StateSnapshots* snapshots_;
  const recurrence::StateFiles* state_files_;
  attention::KvParking& parking_;
  attention::Compute compute_;
  std::unordered_map<int64_t, schedule::TurnStart> turns_;
  std::unordered_map<int64_t, History> histories_;
  std::optional<std::pair<std::string, io::KvSave>> restored_;  ///< the last save read, by folder
  bool restores_whole_ = false;            ///< no pass in its middle could be computed instead
  std::vector<schedule::Sample> samples_;  ///< of the pass
  std::string team_;  ///< of the pass, for messages: "instance 4 in team 1 of …"; "": all instances
  double unreported_park_s_ = 0;  ///< in which keys left the cache as others came
  device::Buffer logits_, candidates_;
  std::vector<float> host_rows_;  ///< a tile of hidden states
  AllowedTokens allowed_;
};

}  // namespace pecia::execute
