// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The legality table for people and for programs: in general, and for one model on a given number
/// of ranks.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/ranks/parallel/modes.hpp"

namespace pecia::parallel {

/// Returns the table in Markdown. It says what each mode is and needs. modes.md holds this text.
std::string modes_markdown();

/// Returns the table in JSON:
/// {"modes": [{"cp": "1" | ">1", "sp", "tp", "prefill": […], "decode": […]}]}
nlohmann::ordered_json modes_json();

/// Returns one line for each grid of a replica of `ranks` ranks: its modes, or why it has none.
std::string modes_text(int ranks, const ModelShape& model,
                       Reproducible reproducible = Reproducible::run);

/// Returns every pair of modes on every grid in JSON:
/// [{"cp", "sp", "tp", "ep", "prefill", "decode", "legal", "reason": null | "…"}]
nlohmann::ordered_json modes_json(int ranks, const ModelShape& model,
                                  Reproducible reproducible = Reproducible::run);

}  // namespace pecia::parallel
