// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank of a job needs and sends, before there is one: a phantom of the rank runs passes as
/// the job's would be.

#include "kernels/api/traits.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/model/attention/window_totals.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/parallel/shift_rule.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::execute {

struct RankNeeds {
  int64_t weight_bytes = 0;  ///< resident weights, each tensor padded
  /// Memory of both passes beside weights and KV cache. What a library takes for itself is not
  /// counted.
  int64_t work_bytes = 0;
  int64_t prefill_sent_bytes = 0;  ///< in a pass of max_batch_tokens tokens of one prompt
  int64_t decode_sent_bytes = 0;   ///< in a step of max_sequences sequences, held by all instances
  attention::WindowTotals prefill_windows, decode_windows;  ///< of the same
};

/// Runs the largest pass with prompts and a step of the largest batch. `resources`: with degrees,
/// modes, kv_dtype, max_batch_tokens and max_sequences; a ring that is chosen by rule is taken to be
/// pass-KV, and without a shift threshold no pass shifts. `weights`: type of tensors that are not
/// codes. `traits`: of the machine's backend.
RankNeeds needs_of_rank(int rank, const job::Job& job, const model::ModelConfig& config,
                        const resources::Resources& resources, DType weights,
                        const kernels::BackendTraits& traits);

/// What the rule of the shift configuration counts: averages over the ranks of an SP × TP block.
/// They send in proportion to the tokens, and no weights, so these may have any type.
parallel::SentPerToken sent_per_token(const model::ModelConfig& config, int sp, int tp, int ep = 1,
                                      DType wire = DType::fp32);

}  // namespace pecia::execute
