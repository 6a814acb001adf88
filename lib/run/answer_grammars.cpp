// SPDX-License-Identifier: Apache-2.0
#include "lib/run/answer_grammars.hpp"

#include <filesystem>

#include "lib/base/core/error.hpp"
#include "lib/files/text/detokenizer.hpp"

namespace pecia::run {
namespace {

void require_shapes_to_be_possible(const job::Job& job,
                                   const std::map<std::string, std::string>& shapes) {
  const std::string who = shapes.empty() ? "" : shapes.begin()->second + ": ";
  if (const auto why = grammar::why_none(); !why.empty())
    fail<Unsupported>("{}the answer must have a shape, and {}", who, why);
  if (job.generation.ignore_eos)
    fail<InputError>(
        "{}generation.ignore_eos with answers that have a shape: a stop token ends such an answer; "
        "use ignore_eos: false",
        who);
  if (const auto tokenizer = job.model.path / "tokenizer.json"; !std::filesystem::exists(tokenizer))
    fail<InputError>(
        "{}{} is not there, and the shape of answers is one of text; put it there from the model's "
        "source",
        who, tokenizer.string());
}

}  // namespace

std::shared_ptr<grammar::Grammars> answer_grammars(const job::Job& job,
                                                   const model::ModelConfig& config,
                                                   const std::map<std::string, std::string>& shapes,
                                                   int threads) {
  require_shapes_to_be_possible(job, shapes);
  std::shared_ptr<grammar::Grammars> grammars = grammar::make_grammars(
      io::Detokenizer(job.model.path / "tokenizer.json"), config.vocab,
      job.generation.stop_token_ids.value_or(config.stop_token_ids), threads);
  for (const auto& [shape, who] : shapes) {
    try {
      grammars->matcher(shape);
    } catch (const InputError& error) {
      fail<InputError>("{}: {}", who, error.what());
    }
  }
  return grammars;
}

}  // namespace pecia::run
