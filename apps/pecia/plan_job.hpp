// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `pecia plan JOB.yaml` knows of a job without its weights and without a machine: first as a
/// value, then for people.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace pecia::app {

/// `ranks` 0: as many as the job's degrees say, and one for cp: auto. Prompts that are not there
/// yet are left out, and "prompts" says so. InputError for what is wrong with job file, config.json
/// or prompts.
nlohmann::ordered_json plan_job(const std::filesystem::path& job_file,
                                const std::vector<std::string>& overrides, int ranks);
std::string plan_text(const nlohmann::ordered_json& plan);

}  // namespace pecia::app
