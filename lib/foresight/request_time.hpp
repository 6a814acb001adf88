// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long one request alone takes on a replica of a described cluster.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "lib/foresight/replay.hpp"
#include "lib/foresight/replica_passes.hpp"

namespace pecia::foresight {

struct RequestShape {
  int64_t prompt_tokens = 0;  ///< of its prompt without the cached ones, at least 1
  int64_t cached_tokens = 0;  ///< of earlier turns
  int64_t new_tokens = 1;     ///< of its answer, at least 1

  bool operator==(const RequestShape&) const = default;
};

/// PROMPT[+CACHED][:NEW], as "128000", "1280+126720" or "8000:200". Throws InputError for another
/// form, and for numbers below 1 (CACHED: 0) or above 2^40.
RequestShape parse_shape(std::string_view text);

struct RequestTime {
  parallel::Ring ring = parallel::Ring::pass_kv;  ///< of the prompt: the job's, or the faster one
  double ttft_s = 0;                              ///< all passes of the prompt
  double tbt_s = 0;                               ///< a step in the middle of the answer
  RankTimes prefill;                              ///< of the busiest rank in each pass, all passes
};

/// Foresees the passes of a prompt in chunks of max_batch_tokens, and a step of its answer. Where
/// there are many chunks, some are played, and those between take times on a line between theirs: a
/// chunk's work grows by the same amount from the second on. Sparse attention by levels counts what
/// levels keep, in whatever order the tokens lie.
RequestTime foresee(const Replica& replica, const machines::Cluster& cluster,
                    const RequestShape& shape);

/// Writes what all ranks do in the prompt's last chunk, and in a step of the answer, as traces into
/// `folder`/prefill and `folder`/decode. `ring`: of the prompt. Throws as foresee does, and
/// SystemError where a file cannot be written.
void write_traces(const Replica& replica, const machines::Cluster& cluster,
                  const RequestShape& shape, parallel::Ring ring,
                  const std::filesystem::path& folder);

/// Why a rank's memory is too small for the weights, the request's keys and values, and the work of
/// its largest pass: the words of the allocator. Absent if it fits.
std::optional<std::string> why_not(const Replica& replica, const machines::Cluster& cluster,
                                   const RequestShape& shape);

}  // namespace pecia::foresight
