// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests that begin alike, which a replica takes together, and as one for the scheduler.

#include <optional>
#include <vector>

#include "lib/work/batch/inputs.hpp"

namespace pecia::batch {

/// Requests that a replica takes together: one, or several that share a beginning.
struct RequestGroup {
  std::vector<const InputRequest*> requests;
  int64_t shared_tokens = 0;
  double work = 0;
};

/// These requests of the inputs in groups, in the order of the groups' first requests.
std::vector<RequestGroup> grouped(const Inputs& inputs,
                                  const std::vector<const InputRequest*>& requests);

/// A fork whose first turn is the common beginning of `tokens` tokens, and whose branches are these
/// requests. The turns of a chain are one branch, one after the other (Turn::goes_on). Each turn of a
/// fork is a branch; it begins with the end of the fork's first turn (Turn::stem_end_tokens).
/// Answers that an earlier start began come first. Absent where the requests do not begin with the
/// same tokens after all.
///
///     chain  a b c d; e        beginning  a b c
///     fork   a b c f; g; h     branches   d, then e     f     f g     f h
std::optional<batch::Request> joined(const std::vector<batch::Request>& requests, int64_t tokens);

}  // namespace pecia::batch
