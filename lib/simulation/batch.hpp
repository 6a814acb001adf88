// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The batch that is simulated, and the same batch as each layout has it: requests that begin alike
/// are joined as a run joins them, and into how many pieces a group is divided depends on the layout.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/engine/schedule/simulated_requests.hpp"
#include "lib/work/resources/prefix_sharing.hpp"

namespace pecia::simulation {

/// Does `each(turn, tokens before it)` for the turns of a request. Of a fork's first turn, the later
/// ones see the prompt alone.
template <typename Each>
void for_turns(const schedule::SimulatedRequest& request, const Each& each) {
  const bool chain = request.followup == io::Followup::chain;
  int64_t before = 0, of_branch = 0;
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const schedule::SimulatedTurn& turn = request.turns[i];
    each(turn, before + of_branch);
    const int64_t tokens = turn.prompt_tokens + turn.answer_tokens;
    if (chain)
      before += tokens;
    else if (i == 0)
      before = turn.prompt_tokens;
    else
      of_branch = turn.goes_on ? of_branch + tokens : 0;
  }
}

/// A batch in the order in which a run takes its requests, at least one. Requests that begin alike
/// may be joined to one (SimulatedRequest::is_joined).
class Batch {
 public:
  /// `config`: its FLOPs say which requests are the longest.
  Batch(std::vector<schedule::SimulatedRequest> requests, const model::ModelConfig& config);

  const std::vector<schedule::SimulatedRequest>& requests() const { return requests_; }
  /// Counts joined requests one by one, and what they begin with once.
  const resources::BatchWork& work() const { return work_; }
  /// Tokens of the longest request's prompts, all turns that see each other.
  int64_t longest_prompt() const { return longest_prompt_; }
  /// Tokens of the longest sequence, with its answers.
  int64_t longest_sequence() const { return longest_sequence_; }
  /// Tokens of a turn's prompt, on average.
  int64_t mean_prompt() const { return mean_prompt_; }
  /// Tokens before an answer's token, on average.
  int64_t mean_context() const { return mean_context_; }
  /// Tokens that the requests have in the cache at most, all turns together, in descending order. The
  /// first of joined requests has those that all of them begin with.
  const std::vector<int64_t>& cached() const { return cached_; }
  /// The batch as it would be if every answer ended at its first token.
  std::vector<schedule::SimulatedRequest> at_once() const;

 private:
  std::vector<schedule::SimulatedRequest> requests_;
  resources::BatchWork work_;
  int64_t longest_prompt_ = 1, longest_sequence_ = 1, mean_prompt_ = 1, mean_context_ = 1;
  std::vector<int64_t> cached_;
};

/// A batch as each layout has it.
class Batches {
 public:
  using Requests = std::vector<schedule::SimulatedRequest>;
  /// What of a batch is played: indices into its requests, in their order.
  using Part = std::function<std::vector<size_t>(const Requests&)>;
  /// Changes requests, as to shorten their answers.
  using Edit = std::function<void(Requests&)>;

  /// The same requests, at least one, in every layout: they have no tokens that could be alike.
  Batches(Requests requests, const model::ModelConfig& config);
  /// The requests of a job that can run, at least one. Where requests that begin alike may be joined,
  /// all prompts are read. `part` chooses among the requests as one replica would join them.
  /// `inputs` and `config` outlive this object, and the inputs are nobody else's meanwhile.
  Batches(const job::Job& job, batch::Inputs& inputs, const model::ModelConfig& config,
          const Part& part = {}, Edit edit = {});
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  /// Where nothing is joined.
  const Batch& alone() const { return *alone_; }
  /// On these resources, with degrees and modes, of this job or one that differs only in its demands
  /// on the machine. The reference stays valid.
  const Batch& of(const job::Job& job, const resources::Resources& resources);
  /// Why requests do not share what they begin with; "": they do.
  std::string why_not_shared(const job::Job& job, const resources::Resources& resources) const;

 private:
  /// The requests that are played, in the groups that the inputs have.
  Requests played(const job::Job::Batch& of) const;
  const batch::PrefixGroups& groups(int64_t block);

  const model::ModelConfig& config_;
  batch::Inputs* inputs_ = nullptr;
  Edit edit_;
  std::vector<bool> chosen_;  ///< rows of the requests that are played; empty: all are
  std::unique_ptr<const Batch> alone_;
  std::map<int64_t, batch::PrefixGroups> groups_;            ///< by block
  std::map<std::pair<int64_t, int>, const Batch> by_rules_;  ///< by block and parts
};

}  // namespace pecia::simulation
