// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Whether answers can have the shapes that the job and its requests ask for; a run and its check
/// beforehand ask alike.

#include <map>
#include <memory>
#include <string>

#include "lib/files/grammar/grammars.hpp"
#include "lib/model/config/config.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::run {

/// The grammars of the model's tokenizer. Those of `shapes` (batch::Inputs::shapes) are compiled by
/// `threads`, to see that they can be. Throws InputError or Unsupported, with shard and request
/// where a request asks.
std::shared_ptr<grammar::Grammars> answer_grammars(const job::Job& job,
                                                   const model::ModelConfig& config,
                                                   const std::map<std::string, std::string>& shapes,
                                                   int threads);

}  // namespace pecia::run
