// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lib/base/core/error.hpp"
#include "lib/base/core/meant.hpp"
#include "lib/model/config/presets.hpp"

namespace pecia::app {
namespace {

/// The presets that read as many tokens: those of as many parameters, or else the nearest one.
std::vector<std::string> presets_that_read(int64_t tokens, const model::ModelConfig& config) {
  constexpr double alike = 0.05;  // the logarithm of the ratio of their parameters
  const auto parameters = static_cast<double>(config.parameters());
  std::vector<std::string> names;
  std::string nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& name : model::model_presets()) {
    const model::ModelConfig other = model::config_of_preset_or_folder(name);
    if (other.max_positions < tokens) continue;
    const double distance =
        std::abs(std::log(static_cast<double>(other.parameters()) / parameters));
    if (distance < alike && other.family == config.family) names.push_back(name);
    if (distance < least) least = distance, nearest = name;
  }
  if (names.empty() && !nearest.empty()) names.push_back(nearest);
  return names;
}

/// "--set 'model.rope_scaling={type: yarn, factor: 13}'", where the job may stretch the model so far.
std::optional<std::string> scaling_for(int64_t tokens, const job::Job& job,
                                       const model::ModelConfig& config) {
  if (!job.model.rope_scaling && config.rope.scaling != model::RopeScaling::none) return {};
  const int64_t own =
      job.model.rope_scaling ? config.rope.original_max_positions : config.max_positions;
  const auto kind = job.model.rope_scaling ? config.rope.scaling : model::RopeScaling::yarn;
  const int64_t factor = (tokens + own - 1) / own;
  constexpr int64_t most_factor = 1'000'000;  // of a job's model.rope_scaling
  if (factor > most_factor || factor * own > model::max_model_positions) return {};
  return fmt::format("--set 'model.rope_scaling={{type: {}, factor: {}}}'", name_of(kind), factor);
}

}  // namespace

void refuse_long_requests(const std::vector<AskedRequests>& asked, const job::Job& job,
                          const model::ModelConfig& config, const std::string& model) {
  for (const auto& [text, shape, count] : asked) {
    const int64_t tokens = shape.cached_tokens + shape.prompt_tokens + shape.new_tokens;
    if (tokens <= config.max_positions) continue;
    std::vector<std::string> remedies;
    if (const auto names = presets_that_read(tokens, config); !names.empty())
      remedies.push_back(
          fmt::format("plan for a model that reads as much (--model {})", any_of_text(names)));
    if (const auto scaling = scaling_for(tokens, job, config))
      remedies.push_back(fmt::format("stretch its positions ({})", *scaling));
    remedies.emplace_back("ask about shorter requests");
    fail<InputError>("request {}: it has {} tokens with its answer, and {} reads {}; {}", text,
                     tokens, model, config.max_positions, any_of_text(remedies));
  }
}

void refuse_without_prompts(const batch::Inputs& inputs, const job::Job& job,
                            const model::ModelConfig& config) {
  const auto requests = static_cast<int64_t>(inputs.requests().size());
  int64_t too_long = 0, longest = 0;
  for (const batch::InputRequest& request : inputs.requests()) {
    bool is_long = false;
    for (size_t turn = 0; turn < inputs.prompt(request).turns.size(); ++turn) {
      const int64_t answer = inputs.max_new_tokens(request, turn) > 0 ? 1 : 0;
      const int64_t tokens = inputs.kept_tokens(request, turn) + answer;
      is_long |= tokens > config.max_positions;
      longest = std::max(longest, tokens);
    }
    too_long += is_long;
  }
  if (requests == 0)
    fail<InputError>(
        "the prompt shards have no requests to foresee; name others with --requests FILE.h5, or "
        "say "
        "lengths with --request PROMPT[:NEW][xCOUNT]");
  if (too_long < requests)
    fail<InputError>(
        "none of the {} requests can run, and {} of them are longer than the model reads ({} "
        "tokens); pecia inspect shows the prompts",
        requests, too_long, config.max_positions);
  const auto scaling = scaling_for(longest, job, config);
  fail<InputError>(
      "{} longer than the model reads ({} tokens), so there is nothing to foresee: set "
      "limits.over_length to cut them{}, or plan for a model that reads more",
      requests == 1 ? "the only request is" : fmt::format("all {} requests are", requests),
      config.max_positions,
      scaling ? fmt::format(", stretch the positions ({} reads the longest one)", *scaling) : "");
}

}  // namespace pecia::app
