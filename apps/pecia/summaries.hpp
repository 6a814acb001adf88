#pragma once
/// What `pecia inspect` says about a file: first as a value, then for people.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pecia::app {

/// Nearest-rank percentile (1 … 100) of ascending values, of which there is at least one.
int64_t percentile(const std::vector<int64_t>& ascending, int percent);

/// A prompt shard: counts, lengths of turns in tokens, schema, followup, tokenizer.
nlohmann::ordered_json summarize_prompts(const std::filesystem::path& shard);
std::string prompts_text(const nlohmann::ordered_json& summary);

/// A results file, at any moment of its run: turns by state, tokens, reasons of failures by
/// frequency.
nlohmann::ordered_json summarize_results(const std::filesystem::path& file);
std::string results_text(const nlohmann::ordered_json& summary);

}  // namespace pecia::app
