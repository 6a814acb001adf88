// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_attention.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/core/random.hpp"
#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

using parallel::PartTokens;
using Pick = LevelLayout::Pick;

namespace {

std::vector<comm::LinkLevel> links_of(const std::vector<comm::RackServerGpu>& places, int rank) {
  std::vector<comm::LinkLevel> links;
  for (const comm::RackServerGpu& place : places)
    links.push_back(comm::link_level(places.at(rank), place));
  return links;
}

}  // namespace

LevelAttention::LevelAttention(const Compute& compute, KvCache& cache, AttentionSteps& steps,
                               const LevelRanks& ranks, int rank,
                               const parallel::SparseSetting& setting)
    : steps_(steps),
      compute_(compute),
      cache_(cache),
      levels_(parallel::levels_of(comm::server_of_rank(ranks.places),
                                  comm::rack_of_rank(ranks.places), setting.levels)),
      setting_(setting),
      rank_(rank),
      micros_(setting.micros.value_or(parallel::Micros{1})),
      first_kv_head_(ranks.first_kv_head),
      shape_{steps.num_heads(), cache.shape(), links_of(ranks.places, rank), steps.wire()},
      importance_(compute, cache, steps),
      need_(compute),
      totals_(SparseTotals::of(levels_, cache.shape().layers)),
      exchange_(compute, cache, steps),
      sinks_(compute, cache, steps),
      lists_(compute, cache.shape().num_kv_heads, !keeps_borders()),
      inner_lists_(compute, cache.shape().num_kv_heads, !keeps_borders()),
      any_(compute.buffer()) {
  for (int64_t layer = 0; layer < cache.layers(); ++layer)
    places_.push_back(cache.is_stored(layer) ? num_attended_++ : -1);
  if (levels_.count() == 1) setting_.rule.drop = 0;  // there is nothing to drop from
  if (setting_.counts_shares) {
    const int64_t heads = std::max(ranks.all_kv_heads, cache.shape().num_kv_heads);
    totals_.shares = {heads, std::vector<HeadShares>(static_cast<size_t>(num_attended_ * heads))};
  }
  for (int64_t place = 0; place < num_attended_; ++place) {
    rules_.push_back(
        setting_.rule_of(place, num_attended_, ranks.first_kv_head, cache.shape().num_kv_heads));
    PECIA_CHECK(keeps_borders() || rules_.back().key_drops.empty(),
                "shares by head with levels that choose queries by head, too");
  }
  if (ranks.heads != nullptr)
    other_heads_.emplace(compute, *ranks.heads, ranks.kv_holders, shape_.links);
}

void LevelAttention::keep_ends(PartTokens& part) const {
  if (!keeps_borders()) return;
  part.first = std::min(part.rows, border);
  part.last = std::max(part.last, part.first);
}

void LevelAttention::begin(const PassRows& rows, std::vector<SequenceParts> sequences,
                           AttentionCall own) {
  comm::Communicator& ring = steps_.ring();
  PECIA_CHECK(ring.size() == (head_parallel() ? 1 : num_parts()),
              "levels of {} ranks for a ring of {}", num_parts(), ring.size());
  ring_ = &ring;
  here_ =
      head_parallel() ? parallel::PartsHere{0, num_parts()} : parallel::PartsHere{ring.rank(), 1};
  sequences_ = std::move(sequences);
  own_ = std::move(own);
  const SequenceRuns cached = PassCalls(steps_, rows).in_cache(steps_.kind(0));
  std::vector<TokenImportance::Sequence> tokens;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    auto& runs = tokens.emplace_back(std::move(sequences_[i].tokens)).runs;
    for (const parallel::SequenceId member : rows.lineage(rows.sequences()[i].sequence)) {
      const auto& of_member = cached[rows.key_index(member)];
      runs.insert(runs.end(), of_member.begin(), of_member.end());
    }
  }
  importance_.begin_pass(ring, std::move(tokens));
  need_.begin_pass(rows.count());
  lists_.begin_pass(sequences_, here_);
  if (setting_.rule.geometry == parallel::Geometry::nested)
    inner_lists_.begin_pass(sequences_, here_);
  plan_pass();
}

LevelPass LevelAttention::pass() const {
  return {levels_, sequences_, here_, shape_, micros_, ring_->size(), ring_->rank()};
}

void LevelAttention::plan_pass() {
  dense_ = plan_levels(pass(), {setting_.rule.geometry, 0});
  sparse_.reset();
  started_ = -1;
  if (setting_.rule.drop > 0) {
    weighing_ = dense_;
    plan_sinks(pass(), most_sinks(), weighing_);
  }
  if (levels_.count() == 1) plan_sinks(pass(), most_sinks(), dense_);
  std::vector<parallel::LevelSequence> parts;
  for (const SequenceParts& sequence : sequences_) parts.push_back(sequence.parts);
  totals_.add_pass(parts);
}

bool LevelAttention::drops(int64_t layer) const {
  return rules_[places_[layer]].drop > 0 && importance_.known() &&
         (!keeps_borders() || need_.known());
}

/// Layers next to each other that drop the same share one plan.
const LevelPassPlan& LevelAttention::plan_of(int64_t layer) {
  if (!drops(layer)) return weighs(layer) ? weighing_ : dense_;
  const parallel::LevelRule& rule = rules_[places_[layer]];
  if (!sparse_ || sparse_->rule != rule) {
    sparse_ = plan_levels(pass(), rule);
    plan_sinks(pass(), most_sinks(), *sparse_);
  }
  return *sparse_;
}

TokenNumbers LevelAttention::importance_of_tokens() const {
  TokenNumbers numbers{importance_.numbers(), {}};
  for (size_t i = 0; i < sequences_.size(); ++i) {
    // The tokens here are in this order: cached ones of all parts, then rows of all parts.
    const parallel::LevelSequence& parts = sequences_[i].parts;
    int64_t cached = importance_.first_number(i), row = cached;
    for (int part = here_.first; part < here_.end(); ++part) row += parts[part].cached;
    for (int part = 0; part < num_parts(); ++part) {
      numbers.parts.push_back({cached, row, importance_.tokens(i)});
      if (here_.has(part)) cached += parts[part].cached, row += parts[part].rows;
    }
  }
  return numbers;
}

TokenNumbers LevelAttention::need_of_rows() const {
  TokenNumbers numbers{need_.of_rows(), {}};
  for (const SequenceParts& sequence : sequences_)
    for (const PartPlaces& part : sequence.here) numbers.parts.push_back({0, part.first_row, 0});
  return numbers;
}

/// The same numbers in every run and on all ranks, which differ by layer.
TokenNumbers LevelAttention::any_numbers(int64_t layer) {
  TokenNumbers numbers;
  std::vector<float> any;
  for (const SequenceParts& sequence : sequences_)
    for (int part = 0; part < num_parts(); ++part) {
      const PartTokens& tokens = sequence.parts[part];
      const auto first = std::ssize(any);
      numbers.parts.push_back({first, first + tokens.cached, 0});
      const uint64_t key =
          mix(mix(mix(0, "selection"), static_cast<uint64_t>(layer)), static_cast<uint64_t>(part));
      for (int64_t token = 0; here_.has(part) && token < tokens.cached + tokens.rows; ++token)
        any.push_back(static_cast<float>(uniform(key, static_cast<uint64_t>(token))));
    }
  numbers.numbers = any_.tensor(DType::fp32, {std::ssize(any)});
  compute_.device.copy(any_.data(), any.data(), std::ssize(any) * size_of(DType::fp32),
                       compute_.stream);
  return numbers;
}

/// Puts the keys that higher levels keep first.
void LevelAttention::order_keys(int64_t layer) {
  by_numbers_ = {};
  if (drops(layer)) by_numbers_ = is_random() ? any_numbers(layer) : importance_of_tokens();
  lists_.order_keys(by_numbers_, plan_->rule, 2, levels_.count());
}

/// The same of rows as queries.
void LevelAttention::order_queries(int64_t layer) {
  const bool by_need = drops(layer) && keeps_borders() && !is_random();
  lists_.order_queries(by_need ? need_of_rows() : by_numbers_, plan_->rule, 2, levels_.count());
}

void LevelAttention::start_keys(int64_t layer) {
  plan_ = &plan_of(layer);
  order_keys(layer);
  if (plan_->sinks.keys > 0) sinks_.start(pass(), plan_->sinks, layer, exchange_, lists_);
  exchange_.begin(plan_->layout, layer, lists_);
  schedule_ = parallel::level_schedule(static_cast<int>(plan_->layout.steps.size()));
  follow(schedule_.with_keys, layer, {}, {});
  started_ = layer;
}

void LevelAttention::follow(const std::vector<parallel::LevelEvent>& events, int64_t layer,
                            const LayerRows& x, const Partial& to) {
  for (const auto& [act, step] : events) {
    const auto index = static_cast<size_t>(step);
    switch (act) {
      case parallel::LevelAct::send_keys:
        exchange_.start_keys(index);
        break;
      case parallel::LevelAct::send_queries:
        exchange_.start_queries(index, x.q);
        break;
      case parallel::LevelAct::attend_own:
        steps_.attend(layer, own_, x.q, steps_.cached(layer), to);
        if (keeps_borders() && weighs(layer)) need_.attended_here(to.lse);
        break;
      case parallel::LevelAct::attend:
        exchange_.attend(index);
        break;
      case parallel::LevelAct::merge:
        exchange_.merge(index, to);
        break;
    }
  }
}

void LevelAttention::run(int64_t layer, const LayerRows& x, const Partial& to) {
  if (started_ != layer) start_keys(layer);
  started_ = -1;
  const LevelPassPlan& plan = *plan_;
  order_queries(layer);
  follow(schedule_.with_queries, layer, x, to);
  for (size_t i = 0; i < plan.inner.size(); ++i)
    attend_kept(layer, static_cast<int>(i) + 2, plan.inner[i], x.q, to);
  if (plan.sinks.keys > 0) attend_own(plan.sinks, sinks_.wait(ring_->rank()), lists_, x.q, to);
  if (keeps_borders() && weighs(layer)) learn_need(to);
  totals_.add(layer, plan.count);
}

/// Attends what a level keeps of each part here to itself.
void LevelAttention::attend_kept(int64_t layer, int level, const OwnAttention& inner,
                                 const TensorView& q, const Partial& into) {
  TokenNumbers numbers;
  if (drops(layer)) numbers = is_random() ? any_numbers(layer) : importance_of_tokens();
  inner_lists_.order_keys(numbers, plan_->rule, level, level);
  inner_lists_.order_queries(numbers, plan_->rule, level, level);
  KeyArena& keys = exchange_.keys();
  keys.reserve(inner.keys);
  RowPicks picks;
  const KeyRows to = keys.rows(0, inner.keys);
  exchange_.pick_keys(picks, layer, TokenLists::cached_keys, inner.cached, inner_lists_, to);
  exchange_.pick_keys(picks, layer, TokenLists::new_keys, inner.rows, inner_lists_, to);
  picks.run(compute_);
  attend_own(inner, keys, inner_lists_, q, into);
}

/// Attends own rows to these keys, and merges the results.
void LevelAttention::attend_own(const OwnAttention& own, const KeyArena& keys,
                                const TokenLists& lists, const TensorView& q, const Partial& into) {
  if (own.queries == 0) return;
  LevelArenas& arenas = exchange_.arenas();
  arenas.reserve_queries(own.queries), arenas.reserve_results(own.queries);
  RowPicks picks;
  exchange_.pick_queries(picks, q, own.asking, lists, arenas.queries(0, own.queries));
  picks.run(compute_);
  arenas.attend(own.queries, own.call.positions, own.call.items, own.call.runs,
                own.call.flops.at(0), keys, arenas.results(0, own.queries));
  arenas.merge(own.merged, lists, into);
}

/// Call it after attention to the sinks, whose log-sums are still there.
void LevelAttention::learn_need(const Partial& attended) {
  const LevelArenas& arenas = exchange_.arenas();
  std::vector<kernels::PickedParts> always;
  for (const Pick& pick : plan_->sinks.asking)
    always.push_back(arenas.part(pick, lists_, arenas.results(pick.to, pick.tokens.size())));
  std::vector<kernels::LearntRows> rows;
  for (size_t i = 0; i < sequences_.size(); ++i)
    for (int part = here_.first; part < here_.end(); ++part) {
      const PartTokens& tokens = sequences_[i].parts[part];
      const Pick all{static_cast<int>(i), part, 0, {0, tokens.rows}, 0};
      rows.push_back(
          {lists_.of(TokenLists::queries, all), kept_rows(plan_->rule, levels_.count(), tokens)});
    }
  need_.learn(attended.lse, always, rows);
  if (other_heads_) totals_.add_importance(other_heads_->largest(need_.of_rows()));
}

void LevelAttention::weigh(int64_t layer, const TensorView& q, const Partial& attended) {
  if (!weighs(layer)) return;
  const kernels::Window window = steps_.window(layer);
  WeighCost cost = importance_.weigh(layer, window, q, attended);
  if (window == 0) cost.pairs += plan_->need_pairs;
  if (other_heads_) {
    totals_.importance_pairs += cost.pairs;
    totals_.add_importance(other_heads_->sum_of_kv_head(importance_.numbers()));
  } else {
    totals_.add(cost, rank_, shape_.links);
  }
  if (setting_.counts_shares) count_shares(layer);
}

/// Counts how the tokens of each part share the attention by which the next layer chooses keys. Layers
/// with a window choose none.
void LevelAttention::count_shares(int64_t layer) {
  const auto next = std::ranges::find(places_, places_[layer] + 1) - places_.begin();
  if (steps_.window(next) > 0) return;
  const TensorView all = importance_.numbers();
  std::vector<float> here(static_cast<size_t>(all.elements()));
  compute_.device.copy(here.data(), all.data(), all.elements() * size_of(DType::fp32),
                       compute_.stream);
  compute_.stream.synchronize();
  const TokenNumbers numbers = importance_of_tokens();
  std::vector<float> of_head;
  for (size_t i = 0; i < sequences_.size(); ++i)
    for (int part = here_.first; part < here_.end(); ++part) {
      const PartTokens& tokens = sequences_[i].parts[part];
      const TokenNumbers::Part& first =
          numbers.parts[i * static_cast<size_t>(num_parts()) + static_cast<size_t>(part)];
      for (int64_t head = 0; head < cache_.shape().num_kv_heads; ++head) {
        const auto begin = here.begin() + head * first.head_stride;
        of_head.assign(begin + first.cached, begin + first.cached + tokens.cached);
        of_head.insert(of_head.end(), begin + first.rows, begin + first.rows + tokens.rows);
        totals_.shares.at(places_[layer] + 1, first_kv_head_ + head).add(of_head);
      }
    }
}

}  // namespace pecia::attention
