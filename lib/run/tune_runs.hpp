// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The runs of a tuner: the same calibration prompts, again and again with other attention.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/run/tune.hpp"
#include "lib/simulation/tune/setting.hpp"

namespace pecia::run {

/// Attention of one run; without a setting it is dense.
struct TuneRun {
  std::optional<tune::Setting> setting;
  /// With the likelihoods of prompts, and with questions of retrieval after the prompts. Otherwise
  /// the run tells how long prompts take.
  bool judged = true;
  bool counts_shares = false;        ///< the report says how tokens share their attention
  parallel::LayerDrops layers = {};  ///< of a setting whose deal is not even
};

/// What a run found of a prompt.
struct PromptResult {
  std::string prompt;
  int64_t tokens = 0;
  /// Without judgement these two are empty.
  std::vector<double> nlls;       ///< of the tokens from first_judged on that have one
  std::vector<int32_t> expected;  ///< the most likely token at each place of the prompt
  std::vector<int32_t> answer;
  double ttft_s = 0;
};

/// Tokens of a prompt that follow on few others are not judged: they lie on the first rank.
inline constexpr int64_t first_judged = 64;

/// The folder of a tuner's runs, and the one of a run in it.
std::filesystem::path work_folder(const TuneOptions& options);
std::filesystem::path folder_of(const TuneOptions& options, const TuneRun& run);

/// The shard of questions of retrieval there, one for each prompt in their order
/// (simulation/tune/retrieval.hpp).
std::filesystem::path questions_file(const TuneOptions& options);

/// What replaces values of the job, after the user's own: prompts one at a time, short greedy
/// answers, and the attention of `run`. `cp` is the job's degree.
std::vector<std::string> overrides_of(const TuneOptions& options, const TuneRun& run, int cp,
                                      const std::filesystem::path& folder);

/// How tokens share the attention that they receive, by the report of a run that counted it: as text,
/// and what it says.
std::string shares_text(const std::filesystem::path& folder);
tune::LayerTokens parse_shares(const std::string& text);

/// Reads the finished results in a run's folder, in the order of its inputs. Throws InputError with
/// the prompt and the reason if one has failed.
std::vector<PromptResult> read_results(const std::filesystem::path& folder, bool judged);

}  // namespace pecia::run
