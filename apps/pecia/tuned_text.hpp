// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `pecia tune` prints: what was measured with each setting, how far off the models are, and
/// the settings that serve each goal.

#include <string>

#include "lib/simulation/tune/tuned.hpp"

namespace pecia::app {

std::string tuned_text(const tune::Tuned& tuned);

}  // namespace pecia::app
