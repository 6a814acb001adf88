// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What benchmarks of a model's passes do alike: load it, measure floors, compare with one rank.

#include "apps/bench/support/floors.hpp"
#include "apps/bench/support/model_options.hpp"
#include "apps/bench/support/results.hpp"

namespace pecia::bench {

class ModelBench {
 protected:
  /// Loads the model and resolves the settings, which a benchmark may change before `begin`.
  /// Collective.
  ModelBench(const Session& session, const ModelOptions& options);

  /// Prints the first line, in which `what` follows the model and its types, and measures the floors.
  /// `facts` are added to those of model, types and grid. Collective.
  void begin(const std::string& what, const nlohmann::ordered_json& facts);

  /// Runs passes with these settings on a replica of their own, and returns log-probabilities of whole
  /// vocabularies on rank 0.
  using Feed = std::function<std::vector<float>(comm::Communicator& ring, const LoadedModel& model,
                                                ReplicaSettings settings)>;
  /// Throws CheckFailed unless the log-probabilities of all ranks with `settings` are within the
  /// tolerance those of one rank alone. `what`: "after 9 tokens". Collective.
  void check_against_one_rank(ReplicaSettings settings, const Feed& feed, double tolerance,
                              const std::string& what) const {
    compare_with_one_rank(model_, std::move(settings), feed, tolerance, what);
  }
  /// The same after random keys and values, with weights, products and cache in fp32. A trained
  /// model magnifies rounding there: on SmolLM2-135M the log-probabilities of two backends on one
  /// rank each differ by 1.5e-3 in fp32 and by 0.4 with a cache of bf16, in which no fault would
  /// show. A copy of the weights in fp32 takes part, but for models that are stored as codes.
  void check_in_fp32(ReplicaSettings settings, const Feed& feed, const std::string& what);

  /// Ids below the model's vocabulary, by the seed of the options and this number.
  std::vector<int32_t> tokens_of(int64_t count, int64_t number = 0) const;
  int instances() const { return settings_.resources.cp; }

  const Session& session_;
  comm::Communicator& world_;
  const ModelOptions& model_options_;
  std::unique_ptr<LoadedModel> loaded_;
  const LoadedModel& model_;
  const model::ModelConfig& config_;
  ReplicaSettings settings_;
  Results results_;
  Floors floors_;

 private:
  std::unique_ptr<LoadedModel> exact_;  ///< the copy in fp32, once it is needed

  void compare_with_one_rank(const LoadedModel& model, ReplicaSettings settings, const Feed& feed,
                             double tolerance, const std::string& what) const;
};

/// The difference that --check allows after prompts alone. Sums in another order differ by about 1e-5
/// in fp32. Where a key or value is rounded to a narrower type, such a difference may become one unit
/// in its last place. With rows rounded for each product (`operands`), one of 49152 tokens was off by
/// up to 0.14 after 30 layers.
double logprob_tolerance(DType kv_dtype, DType operands);

}  // namespace pecia::bench
