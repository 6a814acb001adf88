// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far off the predictions of past runs were, in a small file of the user's cache.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pecia::measure {

/// predicted / measured − 1 of a run.
struct Deviation {
  double began_unix_s = 0;
  std::string what;  ///< "SmolLM2-135M · 2 ranks · ring/auto+pass_q"
  std::string by;    ///< what the prediction rested on
  double seconds = 0;
  std::optional<double> prefill, decode;  ///< of tokens per second; absent: the run had none
};

inline constexpr size_t most_deviations = 64;

/// Beside the rates (rates_cache.hpp). Absent where nothing is kept.
std::optional<std::filesystem::path> deviations_path();

/// The last runs, the oldest first; lines that are not understood are left out.
std::vector<Deviation> read_deviations(const std::filesystem::path& path);

/// Adds a line; only the last most_deviations are kept. Throws SystemError.
void add_deviation(const std::filesystem::path& path, const Deviation& deviation);

/// "seconds off by 4 % in the median of 12 runs, prefill 3 %, decode 9 %"; "" for none.
std::string deviations_text(const std::vector<Deviation>& deviations);

}  // namespace pecia::measure
