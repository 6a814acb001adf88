// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `pecia inspect` says about a file, as a value and as text for people.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace pecia::app {

/// Nearest-rank percentile (1 … 100) of at least one value; the values ascend.
int64_t percentile(const std::vector<int64_t>& ascending, int percent);

/// {min, p50, p90, p99, max} of ascending values, and the same as text.
nlohmann::ordered_json spread(const std::vector<int64_t>& ascending);
std::string spread_text(const nlohmann::ordered_json& spread);

/// Summarises a prompt shard: counts, lengths of turns in tokens, schema, followup, tokenizer.
nlohmann::ordered_json summarize_prompts(const std::filesystem::path& shard);
std::string prompts_text(const nlohmann::ordered_json& summary);

/// Summarises a results file, at any moment of its run: turns and requests by state, tokens,
/// lengths of answers, reasons of failures by frequency.
nlohmann::ordered_json summarize_results(const std::filesystem::path& file);
std::string results_text(const nlohmann::ordered_json& summary);
/// One line for a log: "38 of 64 turns done, 0 failed, 2 partial".
std::string results_line(const nlohmann::ordered_json& summary);

/// Summarises a model's folder by its configuration: sizes, what each layer is, bytes of KV cache,
/// and the grids of 2, 4 and 8 ranks that are legal. Throws as model::read_config does.
nlohmann::ordered_json summarize_model(const std::filesystem::path& folder);
std::string model_text(const nlohmann::ordered_json& summary);

/// Summarises a run's folder, at any moment. "state" is starting (no results yet), running, killed
/// (its process has died), stopped (with turns left) or finished. Then come its holder, its
/// results, progress.json with the age of its news, and the figures of report.json; missing parts
/// are null. It takes no lock. Throws InputError where no run has begun.
nlohmann::ordered_json summarize_run(const std::filesystem::path& folder);
std::string run_text(const nlohmann::ordered_json& summary);

/// The same in one line.
std::string run_line(const nlohmann::ordered_json& summary);

/// Whether the summarised run was still going on: starting or running.
bool goes_on(const nlohmann::ordered_json& run_summary);

}  // namespace pecia::app
