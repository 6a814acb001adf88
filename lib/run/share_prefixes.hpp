// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the requests of a run that begin alike, so that their common beginning is computed once.

#include <string>

#include "lib/run/read_inputs.hpp"

namespace pecia::run {

/// Tells the inputs which requests share a beginning, the same on all ranks that have inputs. One
/// rank reads all prompts for it. Collective over all ranks; fails on all together.
void share_prefixes(const Setup& setup, RunInputs& inputs);

/// "prefixes: 98 of 100 requests begin alike in 2 groups; …"; "" where there is nothing to say.
/// `why_not`: resources::why_not_shared.
std::string sharing_line(const batch::Inputs& inputs, const std::string& why_not);

}  // namespace pecia::run
