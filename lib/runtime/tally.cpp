#include "lib/runtime/tally.hpp"

namespace pecia::runtime {
namespace {

bool is_prompt(const PlanItem& item) {
  return item.rows.owner == parallel::PassSequence::balanced;
}

struct NewTokens {
  int64_t prompt = 0, decode = 0;
};

NewTokens new_tokens(const Plan& plan) {
  NewTokens tokens;
  for (const PlanItem& item : plan.items)
    (is_prompt(item) ? tokens.prompt : tokens.decode) += item.rows.count;
  return tokens;
}

}  // namespace

void count_done(const io::TurnResult& result, int64_t slots, Tally& tally) {
  ++tally.done;
  tally.cached_tokens += result.cached_tokens;
  tally.truncated_turns += result.truncated_tokens > 0;
  tally.truncated_tokens += result.truncated_tokens;
  if (result.tokens.empty()) return;  // a prompt that was only read has no answer to cut
  tally.ttft_s.push_back(result.ttft_s);
  if (result.finish_reason != io::FinishReason::length) return;
  ++tally.cut_by_length;
  tally.cut_by_model_length += static_cast<int64_t>(result.tokens.size()) < slots;
}

const char* phase_name(const Plan& plan) {
  const NewTokens tokens = new_tokens(plan);
  if (tokens.decode == 0) return "prefill";
  return tokens.prompt == 0 ? "decode" : "mixed";
}

void PassCounter::count(const Plan& plan, const PassCost& cost, Tally& tally) {
  const NewTokens tokens = new_tokens(plan);
  const auto all = static_cast<double>(tokens.prompt + tokens.decode);
  const double prefill = static_cast<double>(tokens.prompt) / all;
  const double decode = static_cast<double>(tokens.decode) / all;
  tally.prefill_s += prefill * (cost.end_s - cost.begin_s);
  tally.decode_s += decode * (cost.end_s - cost.begin_s);
  tally.prefill_flops += prefill * cost.flops;
  tally.decode_flops += decode * cost.flops;
  tally.prompt_tokens += tokens.prompt;
  for (const int64_t sequence : plan.removed) last_token_.erase(sequence);
  for (const TurnStart& turn : plan.turns) last_token_.erase(turn.sequence);
  for (const PlanItem& item : plan.items) {
    if (item.sampled_index < 0) continue;
    ++tally.output_tokens;
    const auto [last, first] = last_token_.try_emplace(item.rows.sequence, cost.end_s);
    if (!first) tally.tbt_s.push_back(cost.end_s - last->second);
    last->second = cost.end_s;
  }
}

}  // namespace pecia::runtime
