// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The job's prompt shards as one list of requests, checked against the model.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/files/prompts/prompts.hpp"
#include "lib/files/results/results.hpp"
#include "lib/files/text/detokenizer.hpp"
#include "lib/model/config/config.hpp"
#include "lib/work/batch/earlier.hpp"
#include "lib/work/batch/prefixes.hpp"
#include "lib/work/batch/request.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::batch {

/// A request of the job. Its turns are consecutive rows of the results.
struct InputRequest {
  int32_t shard = 0;
  int64_t index = 0;  ///< index in the shard
  int64_t first_row = 0;
  /// Estimated FLOPs of runnable turns, without what another request computes for it; attention is
  /// quadratic.
  double work = 0;
  int64_t spared_tokens = 0;  ///< first tokens of its prompt that another request computes
  /// Last tokens of a fork's first turn that each of its turns computes, since the others are shared.
  int64_t stem_end_tokens = 0;
};

class Inputs {
 public:
  /// Opens all shards. Throws InputError naming file, request and remedy, for a request id that two
  /// shards have, for a vocabulary or tokenizer other than the model's, and for missing arrivals
  /// where they are replayed, and for log-probabilities that a turn asks for and the job does not
  /// write. `earlier`: what earlier starts did of the first turns. Prompts of done turns stay as they
  /// were.
  Inputs(const job::Job& job, const model::ModelConfig& config,
         std::vector<EarlierTurn> earlier = {});

  const std::vector<InputRequest>& requests() const { return requests_; }
  const io::PromptRequest& prompt(const InputRequest& request) const {
    return shards_[request.shard].requests()[request.index];
  }
  /// A request of one turn is a chain, whatever its shard says.
  io::Followup followup(const InputRequest& request) const {
    return prompt(request).turns.size() == 1 ? io::Followup::chain
                                             : shards_[request.shard].followup();
  }
  int64_t num_turns() const { return num_turns_; }
  /// Prompt tokens of the turns that can run.
  int64_t prompt_tokens() const { return prompt_tokens_; }
  /// The tokenizer of the model's tokenizer.json, where any turn has stop strings; otherwise null.
  /// Throws InputError as Detokenizer does, and where the model has no such file.
  std::shared_ptr<const io::Detokenizer> detokenizer() const;
  /// The shapes that answers must have, each once, with who asks for it first: the job, or shard,
  /// request and turn.
  const std::map<std::string, std::string>& shapes() const { return shapes_; }
  /// Requests with a turn that is refused: it is too long, has no tokens, or is left out.
  int64_t refused_requests() const { return refused_requests_; }
  /// Whether any turn can run, or is done.
  bool any_can_run() const;
  /// Whether the turn depends on this key of the job (batch::turn_settings): it does not where the
  /// shard has a value of the turn's own, or where the key changes nothing of it.
  bool depends_on(const std::string& key, int64_t row) const;
  /// FLOPs of the first `length` tokens of a sequence, as a request's work counts them.
  double flops_of(double length) const;
  /// Turns still to run whose prompts limits.over_length cuts.
  int64_t cut_prompts() const;

  /// Rows of turns still to run that have a token outside the vocabulary. It reads all their
  /// tokens.
  std::vector<int64_t> rows_with_bad_tokens() const;
  /// Marks the turns of these rows as unable to run. All figures of this object then exclude them.
  void leave_out(const std::vector<int64_t>& rows);

  /// The prompts that may share a beginning with others, with hashes of blocks of `block` tokens. It
  /// reads all their tokens. Chains whose first turn earlier starts have done are not among them.
  std::vector<PromptPrefix> prompt_prefixes(int64_t block) const;
  /// Notes which requests share a beginning. All figures of this object then count it once for
  /// each group, and not for its other requests.
  void share(std::vector<SharedPrefix> prefixes);
  const std::vector<SharedPrefix>& shared_prefixes() const { return shared_prefixes_; }
  /// Prompt tokens that are not computed since another request of the group computes them, less
  /// those that a fork of a group computes again. prompt_tokens() has them, too.
  int64_t shared_tokens() const { return shared_tokens_; }

  /// The rows of the results and the turns that they hold; the identity is left empty.
  io::ResultsLayout layout() const;

  /// What the turn gives: as its shard says, else as the job does. The first turn of a fork is only
  /// read unless its shard says something else.
  io::Produce produce(const InputRequest& request, size_t turn) const;
  /// Whether any turn needs logits, so that the model must have a head.
  bool needs_head() const { return needs_head_; }

  /// Tokens that are read behind the turn's prompt to score its longest continuation, and all of them.
  int64_t longest_continuation(const InputRequest& request, size_t turn) const;
  int64_t continuation_tokens(const InputRequest& request, size_t turn) const;

  /// 0 for turns that give no text.
  int32_t max_new_tokens(const InputRequest& request, size_t turn) const;
  /// max_new_tokens, clipped to the length that the turn's own prompt leaves of the model's.
  int32_t answer_tokens(const InputRequest& request, size_t turn) const;
  /// Tokens of the turn's prompt after limits.over_length.
  int64_t kept_tokens(const InputRequest& request, size_t turn) const;
  /// Upper bound on the KV slots that the request needs on each of `ring_size` ranks, without those
  /// of its spared tokens.
  int64_t max_slots(const InputRequest& request, int ring_size, int64_t max_batch_tokens) const;

  /// Loads the request with its tokens, ready to run. A problem of one turn alone (an empty turn, a
  /// token outside the vocabulary, too many tokens) is noted in its `refused`. Answers of earlier
  /// starts are not included (source.hpp adds them). Where continuations of several tokens are scored,
  /// it is a fork: each of these is a turn behind the prompt, with its row (Turn::continuation).
  batch::Request load(const InputRequest& request) const;

 private:
  int64_t row(const InputRequest& request, size_t turn) const {
    return request.first_row + static_cast<int64_t>(turn);
  }
  EarlierTurn earlier(const InputRequest& request, size_t turn) const;
  bool is_only_read(const InputRequest& request, size_t turn) const;
  int64_t longest_prompt(const InputRequest& request, size_t turn) const;
  int64_t branches(const InputRequest& request) const;
  int64_t longest_sequence(const InputRequest& request) const;
  std::string bad_token(const std::vector<int32_t>& tokens) const;
  std::string bad_values(const batch::Turn& turn, const io::PromptTurn& given) const;
  std::string bad_product(const batch::Turn& turn, const io::PromptTurn& given) const;
  bool reads_alone(const InputRequest& request) const;
  std::vector<io::TokenSpan> pooled(const InputRequest& request, size_t turn) const;
  std::vector<std::string> refusals(const InputRequest& request) const;
  std::vector<int32_t> kept_prompt(const InputRequest& request, size_t turn,
                                   io::PromptScan& scan) const;
  job::OverLength way_of_cutting(const InputRequest& request, size_t turn) const;
  void count();
  void count_shared();

  const job::Job& job_;
  const model::ModelConfig& config_;
  std::vector<io::PromptShard> shards_;
  std::vector<InputRequest> requests_;
  std::vector<EarlierTurn> earlier_;
  std::vector<bool> left_out_;  ///< by row
  std::vector<bool> counts_;    ///< by row: it is done, or it can run
  std::vector<SharedPrefix> shared_prefixes_;
  int64_t num_turns_ = 0, prompt_tokens_ = 0, refused_requests_ = 0, shared_tokens_ = 0;
  bool have_stop_strings_ = false, needs_head_ = false;
  std::string shape_;  ///< of answers whose turns say none; "": any
  std::map<std::string, std::string> shapes_;
};

}  // namespace pecia::batch
