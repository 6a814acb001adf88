// SPDX-License-Identifier: Apache-2.0
#pragma once
/// By which rules the requests of a job share what they begin with.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/work/batch/prefixes.hpp"
#include "lib/work/batch/request.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::resources {

/// Why requests of the job do not share what they begin with: the job says so, or sharing would
/// change results or leave out what was asked for. "": they share it.
std::string why_not_shared(const job::Job& job, const model::ModelConfig& config,
                           const Resources& resources);

/// The rules on these resources, whose degrees, modes and `gpus` count. Groups are divided among
/// replicas, and among instances that work apart.
batch::PrefixRules prefix_rules(const job::Job& job, const model::ModelConfig& config,
                                const Resources& resources);

/// What requests were or will be spared, as reports and plans have it: {"prefixes", …}; or {"none":
/// why_not}, unless it is "".
nlohmann::ordered_json json_of(const batch::Sharing& sharing, const std::string& why_not);

}  // namespace pecia::resources
