// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a job needs, as far as the model's configuration and the prompts say: no weight is read,
/// nothing is measured, no machine is looked at.

#include <string>

#include "lib/batch/inputs.hpp"
#include "lib/core/dtype.hpp"
#include "lib/job/job.hpp"
#include "lib/model/config.hpp"
#include "lib/resources/resources.hpp"

namespace pecia::resources {

/// Resident weights. `dtype` is that of the layers' matrices, of which model.dtype int4 keeps some
/// in int8.
struct WeightFootprint {
  DType dtype = DType::fp32;
  bool assumed =
      false;          ///< neither the job nor config.json names a type: fp32, as transformers does
  int64_t bytes = 0;  ///< of the whole model
};
WeightFootprint weight_footprint(const job::Job& job, const model::ModelConfig& config);

/// The prompts as they will be run.
struct PromptFootprint {
  int64_t requests = 0, turns = 0;
  int64_t tokens = 0;          ///< of all prompts, before any is cut
  int64_t new_tokens = 0;      ///< at most, of all answers
  int64_t longest_tokens = 0;  ///< of one prompt
  std::string longest_id;      ///< its request
  /// Prompts longer than the model's length beside what they ask for: limits.over_length fails
  /// them, or leaves these tokens out.
  int64_t over_length = 0, truncated_tokens = 0;
};
PromptFootprint prompt_footprint(const job::Job& job, const model::ModelConfig& config,
                                 const batch::Inputs& inputs);

/// The KV cache. `resources`: degrees and modes are decided.
struct KvFootprint {
  DType dtype = DType::fp32;
  int64_t bytes_per_token = 0;          ///< of the whole model
  int64_t bytes_per_token_of_rank = 0;  ///< on a rank that holds the token
  int64_t max_sequences = 0;            ///< running at once
  int64_t tokens_of_rank = 0;           ///< slots that the largest batch can use; 0 without prompts
};
KvFootprint kv_footprint(const job::Job& job, const model::ModelConfig& config,
                         const batch::Inputs* inputs, Resources resources);

}  // namespace pecia::resources
