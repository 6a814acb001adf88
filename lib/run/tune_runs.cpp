// SPDX-License-Identifier: Apache-2.0
#include "lib/run/tune_runs.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"
#include "lib/core/json.hpp"
#include "lib/io/results.hpp"

namespace pecia::run {
namespace {

constexpr int answer_tokens = 16;

/// A path as a value in YAML.
std::string quoted(const std::filesystem::path& path) {
  return json_text(nlohmann::json(std::filesystem::absolute(path).string()));
}

double mean_nll(const std::vector<float>& logprobs, const std::string& prompt) {
  double sum = 0;
  int64_t judged = 0;
  for (size_t i = first_judged; i < logprobs.size(); ++i) {
    if (std::isnan(logprobs[i])) continue;
    sum -= logprobs[i];
    ++judged;
  }
  if (judged == 0 || !std::isfinite(sum))
    fail<InputError>("calibration: prompt {} has no likelihood; leave it out", prompt);
  return sum / static_cast<double>(judged);
}

}  // namespace

std::vector<std::string> overrides_of(const TuneOptions& options, const TuneRun& run, int cp,
                                      const std::filesystem::path& folder) {
  std::vector<std::string> all = options.overrides;
  const auto set = [&](const char* key, const std::string& value) {
    all.push_back(fmt::format("{}={}", key, value));
  };
  set("input", fmt::format("[{}]", quoted(options.calibration)));
  set("output", quoted(folder));
  set("generation.temperature", "0");
  set("generation.max_new_tokens", std::to_string(answer_tokens));
  set("generation.ignore_eos", "true");
  set("generation.logprobs", "0");
  set("generation.prompt_logprobs", run.likelihood ? "1" : "0");
  set("kv.save", "off");
  set("batch.max_sequences", "1");
  set("batch.arrivals", "ignore");
  set("limits.over_length", "fail");
  set("report.trace", "off");
  set("report.progress", "off");
  if (cp > 0) set("parallel.cp", std::to_string(cp));
  set("attention.objective", "off");
  if (run.setting) {
    set("attention.sparse", "csa");
    set("attention.drop", fmt::format("{}", run.setting->drop));
    set("attention.levels", std::to_string(run.setting->levels));
  } else {
    set("attention.sparse", "off");
    set("attention.geometry", "disjoint");
    set("attention.levels", "auto");
    set("attention.drop", "auto");
    set("attention.pipeline", "auto");
    set("attention.decode", "dense");
  }
  return all;
}

std::vector<PromptResult> read_results(const std::filesystem::path& folder, bool likelihood) {
  const io::ResultsFile file(folder / "results.h5", io::Access::read);
  std::vector<PromptResult> results;
  for (int64_t turn = 0; turn < file.num_turns(); ++turn) {
    const io::TurnResult result = file.read(turn);
    const std::string& prompt = file.layout().turns[turn].request_id;
    if (file.state(turn) != io::TurnState::done)
      fail<InputError>("calibration: prompt {} has failed: {}", prompt, result.error);
    results.push_back({prompt, result.prompt_tokens,
                       likelihood ? mean_nll(result.prompt_logprobs, prompt) : 0, result.tokens,
                       result.ttft_s});
  }
  return results;
}

}  // namespace pecia::run
