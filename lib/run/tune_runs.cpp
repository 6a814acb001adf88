// SPDX-License-Identifier: Apache-2.0
#include "lib/run/tune_runs.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/results/results.hpp"

namespace pecia::run {
namespace {

constexpr int answer_tokens = 16;

/// A path as a value in YAML.
std::string quoted(const std::filesystem::path& path) {
  return json_text(nlohmann::json(std::filesystem::absolute(path).string()));
}

std::vector<double> nlls_of(const std::vector<float>& logprobs, const std::string& prompt) {
  std::vector<double> nlls;
  for (size_t i = first_judged; i < logprobs.size(); ++i)
    if (!std::isnan(logprobs[i])) nlls.push_back(-logprobs[i]);
  if (nlls.empty() || !std::ranges::all_of(nlls, [](double nll) { return std::isfinite(nll); }))
    fail<InputError>("calibration: prompt {} has no likelihood; leave it out", prompt);
  return nlls;
}

}  // namespace

std::filesystem::path work_folder(const TuneOptions& options) {
  std::filesystem::path folder = options.output;
  return folder.replace_extension(".runs");
}

std::filesystem::path folder_of(const TuneOptions& options, const TuneRun& run) {
  const std::string name = run.setting ? fmt::format("levels-{}-drop-{}-{}", run.setting->levels,
                                                     run.setting->drop, name_of(run.setting->deal))
                                       : "dense";
  return work_folder(options) / (run.judged ? name : name + "-time");
}

std::filesystem::path questions_file(const TuneOptions& options) {
  return work_folder(options) / "questions.h5";
}

std::vector<std::string> overrides_of(const TuneOptions& options, const TuneRun& run, int cp,
                                      const std::filesystem::path& folder) {
  std::vector<std::string> all = options.overrides;
  const auto set = [&](const char* key, const std::string& value) {
    all.push_back(fmt::format("{}={}", key, value));
  };
  const std::string questions = run.judged ? ", " + quoted(questions_file(options)) : "";
  set("input", fmt::format("[{}{}]", quoted(options.calibration), questions));
  set("output", quoted(folder));
  set("generation.temperature", "0");
  set("generation.max_new_tokens", std::to_string(answer_tokens));
  set("generation.ignore_eos", "true");
  set("generation.logprobs", "0");
  set("generation.prompt_logprobs", run.judged ? "1" : "0");
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
    set("attention.drop", run.layers.empty() ? fmt::format("{}", run.setting->drop)
                                             : json_text(nlohmann::json{{"layers", run.layers}}));
    set("attention.levels", std::to_string(run.setting->levels));
    set("attention.pipeline", json_text(nlohmann::json(run.setting->micros)));
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

std::string shares_text(const std::filesystem::path& folder) {
  std::ifstream file(folder / "report.json");
  return json_text(nlohmann::json::parse(file).at("sparse").at("token_shares"));
}

tune::LayerTokens parse_shares(const std::string& text) {
  tune::LayerTokens layers;
  for (const auto& of_layer : nlohmann::json::parse(text)) {
    std::vector<tune::HeadTokens>& heads = layers.emplace_back();
    for (const auto& head : of_layer)
      heads.push_back({head.at("spread"), head.at("lost").get<std::vector<double>>()});
  }
  return layers;
}

std::vector<PromptResult> read_results(const std::filesystem::path& folder, bool judged) {
  const io::ResultsFile file(folder / "results.h5", io::Access::read);
  std::vector<PromptResult> results;
  for (int64_t turn = 0; turn < file.num_turns(); ++turn) {
    const io::TurnResult result = file.read(turn);
    const std::string& prompt = file.layout().turns[turn].request_id;
    if (file.state(turn) != io::TurnState::done)
      fail<InputError>("calibration: prompt {} has failed: {}", prompt, result.error);
    results.push_back({prompt, result.prompt_tokens,
                       judged ? nlls_of(result.prompt_logprobs, prompt) : std::vector<double>{},
                       judged ? result.prompt_top_tokens : std::vector<int32_t>{}, result.tokens,
                       result.ttft_s});
  }
  return results;
}

}  // namespace pecia::run
