// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long one request alone takes on a replica of a described cluster.

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "lib/simulation/replica_cost_model.hpp"

namespace pecia::simulation {

struct RequestShape {
  int64_t prompt_tokens = 0;  ///< of its prompt without the cached ones, at least 1
  int64_t cached_tokens = 0;  ///< of earlier turns
  int64_t new_tokens = 1;     ///< of its answer, at least 1

  bool operator==(const RequestShape&) const = default;
};

/// PROMPT[+CACHED][:NEW], as "128000", "1280+126720" or "8000:200". Throws InputError for another
/// form, and for numbers below 1 (CACHED: 0) or above 2^40. `of`: what was typed, if that is more.
RequestShape parse_shape(std::string_view text, std::string_view of = {});

struct RequestLatency {
  double ttft_s =
      0;             ///< what the host does before (context_token_us), and all passes of the prompt
  double tbt_s = 0;  ///< a step in the middle of the answer
  RankTimes prefill;  ///< of the busiest rank in each pass, all passes
  std::array<double, comm::num_link_levels>
      sent_bytes{};  ///< for the prompt, as PassCost::sent_bytes
};

/// Simulates the passes of a prompt in chunks of max_batch_tokens, and a step of its answer. Where
/// there are many chunks, some are replayed, and those between take times on a line between theirs: a
/// chunk's work grows by the same amount from the second on. Sparse attention by levels counts what
/// levels keep, in whatever order the tokens lie. Of teams that change, the fastest has the request.
/// `resources`: as ReplicaPasses takes them.
RequestLatency request_latency(PassCosts& costs, const resources::Resources& resources,
                               const RequestShape& shape, Fidelity fidelity = Fidelity::replayed);

/// Writes what all ranks do in the prompt's last chunk, and in a step of the answer, as traces into
/// `folder`/prefill and `folder`/decode. With teams that change, all instances are one. Throws
/// SystemError where a file cannot be written.
void write_traces(PassCosts& costs, const resources::Resources& resources,
                  const RequestShape& shape, const std::filesystem::path& folder);

}  // namespace pecia::simulation
