// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/batch.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::simulation {
namespace {

using schedule::SimulatedRequest;

/// What a request of the batch, or one of joined requests, has by itself.
struct OwnTokens {
  int64_t shared = 0;  ///< of the common beginning, before these
  int64_t tokens = 0;  ///< of prompts and answers
  int64_t again = 0;   ///< of these, ends of a fork's first turn that its later turns compute again
};

std::vector<OwnTokens> own_tokens(const SimulatedRequest& request) {
  std::vector<OwnTokens> all;
  if (!request.is_joined()) all.emplace_back();
  for (const schedule::SimulatedTurn& turn : request.turns) {
    if (turn.shared_tokens > 0) all.push_back({turn.shared_tokens});
    if (all.empty()) continue;  // the common beginning
    all.back().tokens += turn.prompt_tokens + turn.answer_tokens;
    all.back().again += turn.stem_end_tokens;
  }
  return all;
}

}  // namespace

Batch::Batch(std::vector<SimulatedRequest> requests, const model::ModelConfig& config)
    : requests_(std::move(requests)) {
  PECIA_CHECK(!requests_.empty(), "a batch without requests");
  const double pair_flops = config.prompt_flops_per_pair() / 2;  // half of them are seen
  const auto flops_of = [&](int64_t tokens) {
    const auto length = static_cast<double>(tokens);
    return length * config.flops_per_token() + pair_flops * length * length;
  };
  double contexts = 0;
  int64_t turns = 0;
  for (const SimulatedRequest& request : requests_) {
    for_turns(request, [&](const schedule::SimulatedTurn& turn, int64_t before) {
      const int64_t prompt = before + turn.prompt_tokens;
      longest_sequence_ = std::max(longest_sequence_, prompt + turn.answer_tokens);
      longest_prompt_ = std::max(longest_prompt_, prompt);
      work_.prompt_tokens += turn.prompt_tokens;
      work_.answer_tokens += turn.answer_tokens;
      work_.answers += turn.answer_tokens > 0;
      contexts += static_cast<double>(turn.answer_tokens) *
                  static_cast<double>(before + turn.prompt_tokens + turn.answer_tokens / 2);
    });
    turns += std::ssize(request.turns);
    bool is_first = true;
    for (const OwnTokens& own : own_tokens(request)) {
      ++work_.requests;
      work_.flops += flops_of(own.shared + own.tokens - own.again) +
                     static_cast<double>(own.again) * config.flops_per_token() -
                     (is_first ? 0 : flops_of(own.shared));
      cached_.push_back(own.tokens + (is_first ? own.shared : 0));
      is_first = false;
    }
  }
  std::ranges::sort(cached_, std::greater());
  mean_prompt_ = std::max<int64_t>(1, work_.prompt_tokens / turns);
  if (work_.answer_tokens > 0)
    mean_context_ = std::max<int64_t>(
        1, static_cast<int64_t>(contexts / static_cast<double>(work_.answer_tokens)));
}

std::vector<SimulatedRequest> Batch::at_once() const {
  std::vector<SimulatedRequest> requests = requests_;
  for (SimulatedRequest& request : requests)
    for (schedule::SimulatedTurn& turn : request.turns)
      turn.answer_tokens = std::min<int64_t>(turn.answer_tokens, 1);
  return requests;
}

Batches::Batches(Requests requests, const model::ModelConfig& config)
    : config_(config), alone_(std::make_unique<Batch>(std::move(requests), config)) {}

Batches::Batches(const job::Job& job, batch::Inputs& inputs, const model::ModelConfig& config,
                 const Part& part, Edit edit)
    : config_(config), inputs_(&inputs), edit_(std::move(edit)) {
  inputs.share({});
  if (part) {
    if (why_not_shared(job, {}).empty())
      inputs.share(groups(batch::PrefixRules{}.block).divided(1));
    const auto all = schedule::runnable_groups(inputs, job.batch);
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
  schedule::IsOpen is_chosen;
  if (!chosen_.empty()) is_chosen = [this](int64_t row) { return chosen_[row]; };
  Requests requests = schedule::simulated_requests(*inputs_, of, is_chosen);
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

}  // namespace pecia::simulation
