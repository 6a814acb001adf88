// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a described cluster would take for single requests, as values and as text for people.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/foresight/request_time.hpp"

namespace pecia::app {

/// What products take on the cluster's ranks: bf16 where they have a peak for it and the job does not
/// ask for fp32.
std::function<DType(DType)> operands_of(const machines::Cluster& cluster, const job::Job& job);

/// The cluster file as indented lines.
std::string cluster_text(const nlohmann::ordered_json& plan);

/// A line for each request of a plan, at most `most`.
std::string requests_text(const nlohmann::ordered_json& chosen, size_t most);

/// {"fits", "why_not", "requests": […]} of a plan. Traces of the last request are written into
/// `trace`, unless it is empty.
nlohmann::ordered_json times_of(const foresight::Replica& replica, const machines::Cluster& cluster,
                                const std::vector<foresight::RequestShape>& shapes,
                                const std::filesystem::path& trace);

/// The lines of a plan that has them, with the shares and overheads that they rest on.
std::string times_text(const nlohmann::ordered_json& plan);

}  // namespace pecia::app
