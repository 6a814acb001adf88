// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the program says and writes about sparse attention.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/model/attention/sparse_totals.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::run {

/// "csa: levels of 1, 2 and 8 ranks keep 100, 60 and 30 %", with the ranks of each level's largest
/// segment in the first replica; "" without sparse attention. `places`: by rank in grid order.
std::string sparse_text(const resources::Resources& resources,
                        const std::vector<comm::RackServerGpu>& places);

/// Section `sparse` of report.json, from the totals of all ranks in grid order. Pairs, tokens and
/// bytes are sums over them. Where shares are counted, `token_shares` has them by layer with attention
/// and KV head: the spread of the attention that tokens receive, and what each drop from 0 to 1 in
/// steps of 0.02 would lose of it.
nlohmann::ordered_json sparse_json(const resources::Resources& resources,
                                   const std::vector<attention::SparseTotals>& ranks);

}  // namespace pecia::run
