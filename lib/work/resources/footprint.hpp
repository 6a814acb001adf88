// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a job needs, as far as the model's configuration and the prompts tell. Nothing is measured,
/// and neither weights nor the machine are looked at.

#include <string>

#include "lib/base/core/dtype.hpp"
#include "lib/model/config/config.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::resources {

/// The type of weights that are not rounded to codes.
DType float_type(const job::Job& job, const model::ModelConfig& config);

/// Resident weights. `types` is model::types_text of them; with model.dtype int8 or int4 it is that
/// type, although int4 keeps some matrices in int8.
struct WeightFootprint {
  std::string types;
  bool assumed =
      false;          ///< neither the job nor config.json names a type: fp32, as transformers does
  int64_t bytes = 0;  ///< bytes of the whole model
};
/// `gpus`: every rank computes on a GPU, where other codes stay codes than on CPUs.
WeightFootprint weight_footprint(const job::Job& job, const model::ModelConfig& config, bool gpus);

/// The prompts as the run will read them.
struct PromptFootprint {
  int64_t requests = 0, turns = 0;
  int64_t tokens = 0;          ///< tokens of all prompts, before any is cut
  int64_t new_tokens = 0;      ///< upper bound for all answers together
  int64_t longest_tokens = 0;  ///< length of the longest prompt
  std::string longest_id;      ///< request of the longest prompt
  /// Prompts that, with the answers that they ask for, exceed the model's length.
  /// limits.over_length fails them, or cuts these tokens.
  int64_t over_length = 0, truncated_tokens = 0;
};
PromptFootprint prompt_footprint(const job::Job& job, const model::ModelConfig& config,
                                 const batch::Inputs& inputs);

/// The KV cache. In `resources`, degrees and modes are already decided.
struct KvFootprint {
  DType dtype = DType::fp32;
  int64_t bytes_per_token = 0;          ///< bytes of the whole model
  int64_t bytes_per_token_of_rank = 0;  ///< bytes on a rank that holds the token
  int64_t max_sequences = 0;            ///< sequences running at once
  int64_t tokens_of_rank = 0;           ///< slots that the largest batch can use; 0 without prompts
  int64_t recent_tokens_of_rank = 0;    ///< Resources::kv_recent_tokens for them
  int64_t bytes_of_rank = 0;            ///< bytes of these slots
};
KvFootprint kv_footprint(const job::Job& job, const model::ModelConfig& config,
                         const batch::Inputs* inputs, Resources resources);

}  // namespace pecia::resources
