// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Options of the benchmarks that run a model.

#include "apps/bench/support/command.hpp"
#include "apps/bench/support/replica.hpp"

namespace pecia::bench {

struct ModelOptions {
  std::filesystem::path model;
  std::string compute = "auto";
  std::string dtype = "auto";     ///< type of the layers' matrices; auto: as stored
  std::string kv_dtype = "auto";  ///< auto: as a run chooses
  int sp = 1, tp = 1, ep = 1;
  std::string sharding = "base";
  int64_t batch_tokens = 0;  ///< 0: as a run chooses
  uint64_t seed = 1;
  std::string reproducible = "run";
  std::string prepack = "auto";
  bool stages = false;
  std::string backend = "cpu";
  std::string allow_gpu_sharing = "false";

  /// The type with which the floor of products is measured.
  DType product_type() const { return dtype == "fp8" ? DType::fp8 : DType::bf16; }
};

void add_model_options(Command& command, ModelOptions& options);

/// The settings for replicas of `model` on all ranks of the session; kv_tokens is not set. Collective.
ReplicaSettings replica_settings(const ModelOptions& options, const LoadedModel& model,
                                 const Session& session);

/// "CP 2 × SP 2 × TP 1, base": how the options lay out `ranks` ranks.
std::string grid(const ModelOptions& options, int ranks);

}  // namespace pecia::bench
