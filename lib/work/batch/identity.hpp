// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What makes two starts the same run: model, inputs, sampling and precision, but not ranks,
/// threads and layout. Also the settings of a job that may differ between the turns of one run.

#include <string>
#include <vector>

#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/work/batch/inputs.hpp"

namespace pecia::batch {

/// The hash of each file's contents.
std::vector<std::string> sha256_of_files(const std::vector<std::filesystem::path>& files);

/// A JSON object of what every answer of the run depends on, and of the inputs' hashes.
/// `contents_sha256`: of the weights (io::sampled_sha256).
std::string identity(const job::Job& job, const model::ModelConfig& config,
                     const io::Checkpoint& checkpoint, const std::string& contents_sha256,
                     DType kv_dtype, const std::vector<std::string>& input_sha256);

/// Whether an identity's text has the hash of the weights' contents.
bool knows_weights(const std::string& identity);

/// The inputs' hashes in an identity's text; empty where it has none.
std::vector<std::string> input_hashes(const std::string& identity);

/// A flat JSON object by key of the job file: the settings that each turn depends on by itself. A
/// later start may change them for the turns that it runs.
std::string turn_settings(const job::Job& job);

/// Whether these settings cut long prompts at the beginning.
bool cuts_left(const std::string& settings);

/// A key in which two turn_settings differ.
struct SettingsDifference {
  std::string key;   ///< "limits.over_length"
  std::string text;  ///< "limits.over_length (fail → truncate_middle)"
};
std::vector<SettingsDifference> settings_difference(const std::string& before,
                                                    const std::string& now);

/// Whether a turn that began to answer under `before` may go on under `now`, when its prompt has
/// the same length. The settings may differ in the number of new tokens, and in how prompts are cut
/// if this prompt was not cut.
bool may_go_on(const std::string& before, const std::string& now);

/// What keys and values depend on beside the tokens: parts of an identity and of the job.
std::string kv_identity(const std::string& identity, const job::Job& job);

/// Throws InputError listing what differs, before and now, and what to do. The inputs of `before`
/// must be the first inputs of `now`; more may follow. Where `before` does not know the contents of
/// the weights, they are not compared.
void require_same_identity(const io::ResultsLayout& before, const io::ResultsLayout& now,
                           const std::filesystem::path& results);

}  // namespace pecia::batch
