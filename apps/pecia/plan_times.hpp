// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a described cluster would take for single requests, as values and as text for people.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/foresight/request_latency.hpp"

namespace pecia::app {

/// Of the backend on the cluster's ranks. Products take bf16 where the ranks have a peak for it and
/// the job does not ask for fp32.
kernels::BackendTraits traits_of(const machines::Cluster& cluster, const job::Job& job);

/// The cluster file as indented lines.
std::string cluster_text(const nlohmann::ordered_json& plan);

/// A line for each request of a plan, at most `most`.
std::string requests_text(const nlohmann::ordered_json& chosen, size_t most);

}  // namespace pecia::app
