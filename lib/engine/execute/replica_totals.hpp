// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a replica did. Its planning rank counts it.

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "lib/engine/execute/team_timeline.hpp"
#include "lib/engine/schedule/demand_counts.hpp"
#include "lib/engine/schedule/draft_counts.hpp"
#include "lib/engine/schedule/plan.hpp"
#include "lib/files/results/results.hpp"
#include "lib/work/batch/request.hpp"

namespace pecia::execute {

/// Passes and new tokens of teams with the same number of instances.
struct TeamTotals {
  int64_t prefill_passes = 0, prefill_tokens = 0;
  int64_t decode_passes = 0;
  int64_t decode_tokens = 0;  ///< that answers got after a turn's first, which prefill makes
  int64_t masters = 0;        ///< of the decode passes together

  TeamTotals& operator+=(const TeamTotals& other);
  bool operator==(const TeamTotals&) const = default;
};

/// What teams that change did.
struct ElasticTotals {
  std::vector<TeamTotals> by_degree;  ///< [degree − 1]
  int64_t scale_downs = 0;            ///< prompts whose keys were kept by some of their team
  int64_t moved_tokens = 0;           ///< whose keys went to another instance on purpose
  int64_t scale_ups = 0;              ///< teams of answers that took in further instances
  int64_t shrinks = 0;                ///< passes in which keys of answers left an instance
  /// |expected / measured − 1| of the seconds of passes, each expected before it was measured.
  std::vector<double> prefill_errors, decode_errors;
  TeamTimeline timeline;  ///< of one replica

  /// Adds the numbers; the timeline stays.
  ElasticTotals& operator+=(const ElasticTotals& other);
  template <typename A>
  void visit(A& archive) {
    archive(by_degree), archive(scale_downs), archive(moved_tokens), archive(scale_ups),
        archive(shrinks), archive(prefill_errors), archive(decode_errors);
    timeline.visit(archive);
  }
};

/// Counts a pass of one team, from its begin to its end on the passes' clock. A pass that reads
/// prompts and decodes counts as prefill. `expected_s`: how long it was expected to last; absent
/// where nothing like it had been measured. `answered`: by item, the tokens that its answer got.
void count_team(const schedule::Plan& plan, double begin_s, double end_s,
                std::optional<double> expected_s, const std::vector<int64_t>& answered,
                ElasticTotals& totals);

struct ReplicaTotals {
  int64_t done = 0, failed = 0;
  int64_t arrived = 0;  ///< turns of requests that have arrived, of the whole job
  int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  int64_t vectors = 0, scores = 0, score_tokens = 0;  ///< of turns that are done
  int64_t truncated_turns = 0, truncated_tokens = 0;  ///< prompts cut by limits.over_length
  /// Answers that ended without a stop. The second figure counts answers that the model's length
  /// ended before max_new_tokens.
  int64_t cut_by_length = 0, cut_by_model_length = 0;
  double prefill_s = 0, decode_s = 0;          ///< wall time of passes
  double prefill_flops = 0, decode_flops = 0;  ///< work of all the replica's ranks
  int64_t first_tokens = 0;                    ///< first tokens of turns
  int64_t shared_first_tokens = 0;  ///< first tokens from passes that read several prompts
  /// Keys and values read from an earlier start's saves, and those kept for a later start.
  int64_t restored_requests = 0, restored_tokens = 0;
  double restore_s = 0;
  double restored_flops = 0;  ///< work that reading the restored tokens again would have been
  int64_t kept_requests = 0, kept_tokens = 0, kept_bytes = 0;
  double keep_s = 0;
  int64_t not_worth_keeping = 0;  ///< requests that are cheaper to read again
  batch::Sharing sharing;
  schedule::DemandCounts demand;                 ///< of memory on demand
  schedule::DraftCounts drafts;                  ///< of tokens drafted from texts
  double park_s = 0;                             ///< moving keys out of the cache and back
  std::array<int64_t, 3> answer_quantiles = {};  ///< AnswerLengths::quantiles
  ElasticTotals elastic;                         ///< empty unless teams change
  std::vector<double> ttft_s;                    ///< one for each turn
  std::vector<double> tbt_s;                     ///< one for each output token after a turn's first

  template <typename A>
  void visit(A& archive) {
    archive(done), archive(failed), archive(arrived), archive(prompt_tokens),
        archive(output_tokens), archive(cached_tokens), archive(prefill_s), archive(decode_s),
        archive(prefill_flops), archive(decode_flops), archive(first_tokens),
        archive(shared_first_tokens), archive(ttft_s), archive(tbt_s), archive(truncated_turns),
        archive(truncated_tokens), archive(cut_by_length), archive(cut_by_model_length);
    archive(restored_requests), archive(restored_tokens), archive(restore_s),
        archive(restored_flops), archive(kept_requests), archive(kept_tokens), archive(kept_bytes),
        archive(keep_s), archive(not_worth_keeping);
    archive(vectors), archive(scores), archive(score_tokens);
    sharing.visit(archive);
    demand.visit(archive);
    drafts.visit(archive);
    archive(park_s);
    for (int64_t& tokens : answer_quantiles) archive(tokens);
    elastic.visit(archive);
  }
};

/// Counts a turn that is done.
void count_done(const io::TurnResult& result, const io::ResultTurn& turn, ReplicaTotals& totals);

/// New tokens of a pass.
struct NewTokens {
  int64_t prompt = 0, decode = 0;

  double prefill_share() const {
    return static_cast<double>(prompt) / static_cast<double>(prompt + decode);
  }
};
NewTokens new_tokens(const schedule::Plan& plan);

/// "prefill", "decode", or "mixed" for a pass that has rows of both; "save_kv" and "restore_kv".
const char* phase_name(const schedule::Plan& plan);

/// Time and work of an executed pass.
struct PassCost {
  double begin_s = 0, end_s = 0;
  double flops = 0;  ///< work of all the replica's ranks
  double share = 1;  ///< of the replica's instances that were in the pass; its time counts so much
  /// By item, the tokens that its answer got; empty: one where one was sampled.
  std::vector<int64_t> answered = {};
};

/// Adds passes to the totals.
class PassCounter {
 public:
  /// Counts tokens by kind. Time and FLOPs of a mixed pass are divided between prefill and decode
  /// by their shares of its new tokens. The time between two output tokens of a turn runs from the
  /// end of one pass to the end of the other; tokens of one pass come together.
  void count(const schedule::Plan& plan, const PassCost& cost, ReplicaTotals& totals);

 private:
  std::map<int64_t, double> last_token_;  ///< by sequence: time, on the passes' clock
};

}  // namespace pecia::execute
