// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `pecia plan JOB.yaml` knows about a job without its weights and without a machine, as a
/// value and as text for people.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace pecia::app {

/// `ranks` 0: the number that the job's degrees give, with cp: auto as 1. Missing prompts are left
/// out, and "prompts" says so. Throws InputError for errors in the job file, config.json or the
/// prompts.
nlohmann::ordered_json plan_job(const std::filesystem::path& job_file,
                                const std::vector<std::string>& overrides, int ranks);
std::string plan_text(const nlohmann::ordered_json& plan);

}  // namespace pecia::app
