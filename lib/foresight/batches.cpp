// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/batches.hpp"

#include "lib/core/error.hpp"

namespace pecia::foresight {

Batches::Batches(Requests requests, const model::ModelConfig& config)
    : config_(config), alone_(std::make_unique<Batch>(std::move(requests), config)) {}

Batches::Batches(const job::Job& job, batch::Inputs& inputs, const model::ModelConfig& config,
                 const Part& part, Edit edit)
    : config_(config), inputs_(&inputs), edit_(std::move(edit)) {
  inputs.share({});
  if (part) {
    if (why_not_shared(job, {}).empty())
      inputs.share(groups(batch::PrefixRules{}.block).divided(1));
    const auto all = batch::runnable_groups(inputs, job.batch);
    const std::vector<size_t> indices = part(played(job.batch));
    chosen_.resize(inputs.num_turns());
    for (const size_t index : indices)
      for (const batch::InputRequest* request : all.at(index).requests)
        for (size_t turn = 0; turn < inputs.prompt(*request).turns.size(); ++turn)
          chosen_[request->first_row + turn] = true;
    groups_.clear();  // they are of all requests
    inputs.share({});
  }
  alone_ = std::make_unique<Batch>(played(job.batch), config);
}

Batches::Requests Batches::played(const job::Job::Batch& of) const {
  batch::IsOpen is_chosen;
  if (!chosen_.empty()) is_chosen = [this](int64_t row) { return chosen_[row]; };
  Requests requests = batch::simulated_requests(*inputs_, of, is_chosen);
  if (edit_) edit_(requests);
  return requests;
}

const batch::PrefixGroups& Batches::groups(int64_t block) {
  const auto at = groups_.find(block);
  if (at != groups_.end()) return at->second;
  std::vector<batch::PromptPrefix> prompts = inputs_->prompt_prefixes(block);
  if (!chosen_.empty())
    std::erase_if(prompts, [&](const batch::PromptPrefix& prompt) {
      return !chosen_[inputs_->requests()[prompt.request].first_row];
    });
  return groups_.try_emplace(block, std::move(prompts), batch::PrefixRules{.block = block})
      .first->second;
}

std::string Batches::why_not_shared(const job::Job& job,
                                    const resources::Resources& resources) const {
  if (inputs_ == nullptr) return "lengths do not say how prompts begin";
  return resources::why_not_shared(job, config_, resources);
}

const Batch& Batches::of(const job::Job& job, const resources::Resources& resources) {
  if (!why_not_shared(job, resources).empty()) return *alone_;
  const batch::PrefixRules rules = resources::prefix_rules(job, config_, resources);
  const std::pair key(rules.block, rules.parts);
  if (const auto at = by_rules_.find(key); at != by_rules_.end()) return at->second;
  std::vector<batch::SharedPrefix> prefixes = groups(rules.block).divided(rules.parts);
  if (prefixes.empty()) return *alone_;
  inputs_->share(std::move(prefixes));
  return by_rules_.try_emplace(key, played(job.batch), config_).first->second;
}

}  // namespace pecia::foresight
