// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The papers' figures beside this program's, as text for people.

#include <string>

#include "lib/simulation/papers/paper.hpp"

namespace pecia::app {

/// One table for each paper, and what was fitted.
std::string papers_text(const std::vector<simulation::papers::Paper>& papers);

}  // namespace pecia::app
