// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/job_model.hpp"

#include <filesystem>
#include <system_error>

#include "lib/base/core/error.hpp"

namespace pecia::job {
namespace {

void stretch(model::ModelConfig& config, const RopeOverride& scaling) try {
  model::extend_context(config, scaling.kind, scaling.factor);
} catch (const InputError& error) {
  fail<InputError>("model.rope_scaling: {}", error.what());
}

/// Throws InputError for tokens or figures of the job that exceed the model's vocabulary.
void check_vocabulary(const Job::Generation& generation, int64_t vocab) {
  const auto check_count = [vocab](const char* key, int64_t count) {
    if (count > vocab)
      fail<InputError>("{} is {}, but the model has {} tokens; use at most as many, or -1 for all",
                       key, count, vocab);
  };
  check_count("generation.logprobs", generation.logprobs);
  check_count("generation.prompt_logprobs", generation.prompt_logprobs);
  if (!generation.stop_token_ids) return;
  for (const int32_t token : *generation.stop_token_ids)
    if (token >= vocab)
      fail<InputError>(
          "generation.stop_token_ids has {}, but the model's tokens are 0 … {}; "
          "correct it or leave it out",
          token, vocab - 1);
}

/// People name models as hubs and other programs do. Throws InputError with the command that makes
/// a folder of it.
void require_folder(const std::filesystem::path& path) {
  std::error_code unreachable;  // reading the configuration reports an error
  if (path.extension() == ".gguf" && !std::filesystem::is_directory(path, unreachable))
    fail<InputError>(
        "model.path {}: a GGUF file, not a model's folder; scripts/pecia-import-gguf {} {} makes "
        "one",
        path.string(), path.string(), std::filesystem::path(path).replace_extension().string());
  // A hub's id is ORG/NAME, and there is no folder ORG; a wrong path has its parent, mostly.
  const std::filesystem::path above = path.parent_path();
  const auto is_missing = [&](const std::filesystem::path& each) {
    return !std::filesystem::exists(each, unreachable) && !unreachable;
  };
  if (above.filename().empty() || !is_missing(path) || !is_missing(above)) return;
  const std::string id = (above.filename() / path.filename()).string();
  fail<InputError>(
      "model.path {}: there is no such folder with a config.json. If {} is a model of the Hugging "
      "Face hub, "
      "`hf download {} --local-dir {}` makes the folder",
      path.string(), id, id, path.string());
}

}  // namespace

model::ModelConfig read_model_config(const Job& job) {
  require_folder(job.model.path);
  return model_config_of(job, model::read_config(job.model.path));
}

model::ModelConfig model_config_of(const Job& job, model::ModelConfig config) {
  if (job.model.rope_scaling) stretch(config, *job.model.rope_scaling);
  check_vocabulary(job.generation, config.vocab);
  return config;
}

}  // namespace pecia::job
