// SPDX-License-Identifier: Apache-2.0
#include "lib/batch/replica_totals.hpp"

#include <algorithm>

namespace pecia::batch {
namespace {

bool is_prompt(const schedule::PlanItem& item) {
  return item.rows.owner == parallel::PassSequence::balanced;
}

}  // namespace

NewTokens new_tokens(const schedule::Plan& plan) {
  NewTokens tokens;
  for (const schedule::PlanItem& item : plan.items)
    (is_prompt(item) ? tokens.prompt : tokens.decode) += item.rows.count;
  return tokens;
}

void count_done(const io::TurnResult& result, int64_t slots, ReplicaTotals& totals) {
  ++totals.done;
  totals.cached_tokens += result.cached_tokens;
  totals.truncated_turns += result.truncated_tokens > 0;
  totals.truncated_tokens += result.truncated_tokens;
  if (result.tokens.empty()) return;  // a prompt that was only read has no answer to cut
  totals.ttft_s.push_back(result.ttft_s);
  if (result.finish_reason != io::FinishReason::length) return;
  ++totals.cut_by_length;
  totals.cut_by_model_length += static_cast<int64_t>(result.tokens.size()) < slots;
}

const char* phase_name(const schedule::Plan& plan) {
  if (plan.saves()) return "save_kv";
  if (!plan.restore.empty()) return "restore_kv";
  const NewTokens tokens = new_tokens(plan);
  if (tokens.decode == 0) return "prefill";
  return tokens.prompt == 0 ? "decode" : "mixed";
}

void PassCounter::count(const schedule::Plan& plan, const PassCost& cost, ReplicaTotals& totals) {
  for (const int64_t sequence : plan.removed) last_token_.erase(sequence);
  for (const schedule::TurnStart& turn : plan.turns) last_token_.erase(turn.sequence);
  if (!plan.restore.empty()) return;  // keys and values were read, not computed
  const NewTokens tokens = new_tokens(plan);
  const double prefill = tokens.prefill_share(), decode = 1 - prefill;
  const bool shared = std::ranges::count_if(plan.items, is_prompt) > 1;
  totals.prefill_s += prefill * (cost.end_s - cost.begin_s);
  totals.decode_s += decode * (cost.end_s - cost.begin_s);
  totals.prefill_flops += prefill * cost.flops;
  totals.decode_flops += decode * cost.flops;
  totals.prompt_tokens += tokens.prompt;
  for (const schedule::PlanItem& item : plan.items) {
    if (item.sampled_index < 0) continue;
    ++totals.output_tokens;
    if (item.sampled_index == 0) {
      ++totals.first_tokens;
      totals.shared_first_tokens += shared;
    }
    const auto [last, first] = last_token_.try_emplace(item.rows.sequence, cost.end_s);
    if (!first) totals.tbt_s.push_back(cost.end_s - last->second);
    last->second = cost.end_s;
  }
}

}  // namespace pecia::batch
