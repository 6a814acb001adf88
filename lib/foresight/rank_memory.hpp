// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank of a layout holds, as the allocator of its phantom counts it, and whether its memory
/// is large enough for a batch.

#include <optional>
#include <string>

#include "lib/foresight/batch_end.hpp"

namespace pecia::foresight {

struct RankMemory {
  int64_t program_bytes = 0;  ///< rank.program_gib of the cluster
  int64_t weight_bytes = 0, kv_bytes = 0;
  int64_t work_bytes = 0;              ///< of the largest passes that the batch can make
  int64_t free_bytes = 0;              ///< negative where it does not fit
  int64_t kv_tokens = 0;               ///< slots, as a run would take them
  int64_t kv_recent_tokens = 0;        ///< Resources::kv_recent_tokens
  int64_t kv_wanted = 0;               ///< slots for all sequences that may run at once
  std::optional<std::string> why_not;  ///< absent: it fits
};

/// As a run decides it: 80 % of what weights and activations leave is for keys and values, or
/// kv.memory, and no more than the longest sequences use that may run at once. The first rank's parts
/// of what is cut are the largest. `resources`: all but threads and kv_tokens.
RankMemory rank_memory(const PassSetting& setting, const resources::Resources& resources,
                       const Batch& batch);

/// Seconds until a rank has touched memory that it never wrote; 0 where the cluster does not say.
double first_touch_s(const machines::RankPeaks& rank, int64_t bytes);

}  // namespace pecia::foresight
