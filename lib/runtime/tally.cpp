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

const char* phase_name(const Plan& plan) {
  if (plan.saves()) return "save_kv";
  if (!plan.restore.empty()) return "restore_kv";
  const NewTokens tokens = new_tokens(plan);
  if (tokens.decode == 0) return "prefill";
  return tokens.prompt == 0 ? "decode" : "mixed";
}

void PassCounter::count(const Plan& plan, const PassCost& cost, Tally& tally) {
  for (const int64_t sequence : plan.removed) last_token_.erase(sequence);
  for (const TurnStart& turn : plan.turns) last_token_.erase(turn.sequence);
  if (!plan.restore.empty()) return;  // read, not computed
  const NewTokens tokens = new_tokens(plan);
  const auto all = static_cast<double>(tokens.prompt + tokens.decode);
  const double prefill = static_cast<double>(tokens.prompt) / all;
  const double decode = static_cast<double>(tokens.decode) / all;
  tally.prefill_s += prefill * (cost.end_s - cost.begin_s);
  tally.decode_s += decode * (cost.end_s - cost.begin_s);
  tally.prefill_flops += prefill * cost.flops;
  tally.decode_flops += decode * cost.flops;
  tally.prompt_tokens += tokens.prompt;
  for (const PlanItem& item : plan.items) {
    if (item.sampled_index < 0) continue;
    ++tally.output_tokens;
    const auto [last, first] = last_token_.try_emplace(item.rows.sequence, cost.end_s);
    if (!first) tally.tbt_s.push_back(cost.end_s - last->second);
    last->second = cost.end_s;
  }
}

}  // namespace pecia::runtime
