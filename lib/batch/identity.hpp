// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What makes two starts the same run (model, inputs, sampling, precision; not ranks, threads,
/// layout), and what of a job may differ between the turns of one run.

#include <string>
#include <vector>

#include "lib/batch/inputs.hpp"
#include "lib/io/safetensors.hpp"

namespace pecia::batch {

/// Of every file, by its contents.
std::vector<std::string> sha256_of_files(const std::vector<std::filesystem::path>& files);

/// A JSON object: what every answer of the run depends on, and the inputs' hashes.
std::string identity(const job::Job& job, const model::ModelConfig& config,
                     const io::Checkpoint& checkpoint, DType kv_dtype,
                     const std::vector<std::string>& input_sha256);

/// The inputs' hashes in an identity's text; none where it has none.
std::vector<std::string> input_hashes(const std::string& identity);

/// A flat JSON object by key of the job file: what a turn depends on by itself. A later start may
/// change it for the turns that it runs.
std::string turn_settings(const job::Job& job);

/// Whether they cut long prompts at the beginning.
bool cuts_left(const std::string& settings);

/// "limits.over_length (fail → truncate_middle), …": what differs between two turn_settings, by
/// key; empty where they are equal.
std::string settings_differences(const std::string& before, const std::string& now);

/// Whether a turn that began to answer under `before` may go on under `now`, its prompt being as
/// long as it was: only the number of new tokens differs, or how prompts are cut that were not.
bool may_go_on(const std::string& before, const std::string& now);

/// What keys and values depend on beside the tokens, of an identity and the job.
std::string kv_identity(const std::string& identity, const job::Job& job);

/// Throws InputError listing what differs, before and now, and what to do. The inputs of before
/// must be the first of now; more may follow.
void require_same_identity(const io::ResultsLayout& before, const io::ResultsLayout& now,
                           const std::filesystem::path& results);

}  // namespace pecia::batch
