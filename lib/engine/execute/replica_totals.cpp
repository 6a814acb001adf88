// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/replica_totals.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::execute {
namespace {

bool is_prompt(const schedule::PlanItem& item) {
  return item.rows.is_shared();
}

}  // namespace

NewTokens new_tokens(const schedule::Plan& plan) {
  NewTokens tokens;
  for (const schedule::PlanItem& item : plan.items)
    (is_prompt(item) ? tokens.prompt : tokens.decode) += item.rows.count;
  return tokens;
}

void count_done(const io::TurnResult& result, const io::ResultTurn& turn, ReplicaTotals& totals) {
  ++totals.done;
  totals.vectors += turn.vectors;
  totals.scores += turn.scores;
  totals.score_tokens += turn.score_tokens;
  totals.cached_tokens += result.cached_tokens;
  totals.truncated_turns += result.truncated_tokens > 0;
  totals.truncated_tokens += result.truncated_tokens;
  if (result.tokens.empty()) return;  // a prompt that was only read has no answer to cut
  totals.ttft_s.push_back(result.ttft_s);
  if (result.finish_reason != io::FinishReason::length) return;
  ++totals.cut_by_length;
  totals.cut_by_model_length += std::ssize(result.tokens) < turn.slots;
}

const char* phase_name(const schedule::Plan& plan) {
  if (plan.saves()) return "save_kv";
  if (!plan.restore.empty()) return "restore_kv";
  const NewTokens tokens = new_tokens(plan);
  if (tokens.decode == 0) return "prefill";
  return tokens.prompt == 0 ? "decode" : "mixed";
}

TeamTotals& TeamTotals::operator+=(const TeamTotals& other) {
  prefill_passes += other.prefill_passes;
  prefill_tokens += other.prefill_tokens;
  decode_passes += other.decode_passes;
  decode_tokens += other.decode_tokens;
  masters += other.masters;
  return *this;
}

ElasticTotals& ElasticTotals::operator+=(const ElasticTotals& other) {
  by_degree.resize(std::max(by_degree.size(), other.by_degree.size()));
  for (size_t i = 0; i < other.by_degree.size(); ++i) by_degree[i] += other.by_degree[i];
  scale_downs += other.scale_downs;
  moved_tokens += other.moved_tokens;
  scale_ups += other.scale_ups;
  shrinks += other.shrinks;
  const auto append = [](const std::vector<double>& from, std::vector<double>& to) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(other.prefill_errors, prefill_errors);
  append(other.decode_errors, decode_errors);
  return *this;
}

void count_team(const schedule::Plan& plan, double begin_s, double end_s,
                std::optional<double> expected_s, const std::vector<int64_t>& answered,
                ElasticTotals& totals) {
  totals.timeline.add(plan, begin_s, end_s);
  const parallel::Team& team = plan.teams.front();
  const auto degree = static_cast<size_t>(team.size());
  if (totals.by_degree.size() < degree) totals.by_degree.resize(degree);
  TeamTotals& of_degree = totals.by_degree[degree - 1];
  const NewTokens tokens = new_tokens(plan);
  if (expected_s && end_s > begin_s)
    (tokens.prompt > 0 ? totals.prefill_errors : totals.decode_errors)
        .push_back(std::abs(*expected_s / (end_s - begin_s) - 1));
  if (tokens.prompt > 0) {
    ++of_degree.prefill_passes;
  } else {
    ++of_degree.decode_passes;
    of_degree.masters += team.workers();
  }
  totals.shrinks += moves_between(plan);
  of_degree.prefill_tokens += tokens.prompt;
  for (size_t i = 0; i < plan.items.size(); ++i)
    if (!is_prompt(plan.items[i])) of_degree.decode_tokens += answered.at(i);
  for (const schedule::PlanItem& item : plan.items) {
    const bool last_chunk = item.rows.first + item.rows.count == item.prompt_end;
    totals.scale_downs += is_prompt(item) && last_chunk && !item.kept.empty() &&
                          item.kept.size() < static_cast<size_t>(team.size());
    if (item.gathers == 0) continue;
    for (const parallel::KeptShare& kept : item.kept) totals.moved_tokens += kept.tokens;
    totals.moved_tokens -= item.rows.count;
  }
}

void PassCounter::count(const schedule::Plan& plan, const PassCost& cost, ReplicaTotals& totals) {
  for (const int64_t sequence : plan.removed) last_token_.erase(sequence);
  for (const schedule::PlanItem& item : plan.items)
    if (is_prompt(item)) last_token_.erase(item.rows.sequence);
  if (!plan.restore.empty()) return;  // keys and values were read, not computed
  const NewTokens tokens = new_tokens(plan);
  const double prefill = tokens.prefill_share(), decode = 1 - prefill;
  const bool shared = std::ranges::count_if(plan.items, is_prompt) > 1;
  const double seconds = cost.share * (cost.end_s - cost.begin_s);
  totals.prefill_s += prefill * seconds;
  totals.decode_s += decode * seconds;
  totals.prefill_flops += prefill * cost.flops;
  totals.decode_flops += decode * cost.flops;
  totals.prompt_tokens += tokens.prompt;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const schedule::PlanItem& item = plan.items[i];
    const int64_t answered = item.sampled_index < 0  ? 0
                             : cost.answered.empty() ? 1
                                                     : cost.answered[i];
    if (answered == 0) continue;
    totals.output_tokens += answered;
    if (item.sampled_index == 0) {
      ++totals.first_tokens;
      totals.shared_first_tokens += shared;
    }
    const auto [last, first] = last_token_.try_emplace(item.rows.sequence, cost.end_s);
    if (!first) totals.tbt_s.push_back(cost.end_s - last->second);
    totals.tbt_s.insert(totals.tbt_s.end(), answered - 1, 0.0);
    last->second = cost.end_s;
  }
}

}  // namespace pecia::execute
