// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The legality table for people and for programs: as it is, and for one model on so many ranks.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/parallel/modes.hpp"

namespace pecia::parallel {

/// The table in Markdown, with what each mode is and needs. modes.md holds it.
std::string modes_markdown();

/// {"modes": [{"cp": "1" | ">1", "sp", "tp", "prefill": […], "decode": […]}]}
nlohmann::ordered_json modes_json();

/// One line for each grid of a replica of `ranks` ranks: its modes, or why it has none.
std::string modes_text(int ranks, const ModelShape& model,
                       Reproducible reproducible = Reproducible::run);

/// [{"cp", "sp", "tp", "prefill", "decode", "legal", "reason": null | "…"}]: every pair of modes on
/// every grid.
nlohmann::ordered_json modes_json(int ranks, const ModelShape& model,
                                  Reproducible reproducible = Reproducible::run);

}  // namespace pecia::parallel
