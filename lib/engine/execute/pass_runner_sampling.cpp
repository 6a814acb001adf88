// SPDX-License-Identifier: Apache-2.0
/// Next tokens and log-probabilities of the rows asked about.

#include <algorithm>

#include "lib/base/core/random.hpp"
#include "lib/engine/execute/pass_runner.hpp"

namespace pecia::execute {

using report::Kind;
using report::ScopedSpan;

namespace {

std::vector<int32_t> wanted_tokens(const schedule::Plan& plan, std::span<const int32_t> targets) {
  std::vector<int32_t> tokens;
  for (const int32_t target : targets) tokens.push_back(plan.targets[target].token);
  return tokens;
}

}  // namespace

/// The number of rows whose logits take about 32 MB.
int64_t PassRunner::tile_rows() const {
  return std::clamp<int64_t>((int64_t{32} << 20) / (settings_.vocab * size_of(DType::fp32)), 1,
                             512);
}

/// Evaluates this rank's share of the rows asked about, some at a time: their outputs are in memory
/// together, and their logits tile by tile.
schedule::LogProbs PassRunner::predict(const Asked& asked, int num_top, bool sampled,
                                       const Evaluate& evaluate) {
  constexpr int64_t most_outputs = 4096;
  schedule::LogProbs found;
  for (int64_t begin = 0; begin < std::ssize(asked.rows); begin += most_outputs) {
    const int64_t count = std::min(most_outputs, std::ssize(asked.rows) - begin);
    const Asked some{{asked.which.begin() + begin, asked.which.begin() + begin + count},
                     {asked.rows.begin() + begin, asked.rows.begin() + begin + count}};
    found.append(predict_some(some, num_top, sampled, evaluate));
  }
  return found;
}

schedule::LogProbs PassRunner::predict_some(const Asked& asked, int num_top, bool sampled,
                                            const Evaluate& evaluate) {
  schedule::LogProbs found;
  const model::Model::Outputs outputs = model_.outputs(asked.rows);
  const int64_t count = outputs.hidden.rows();
  const int64_t width = num_top < 0 ? settings_.vocab : num_top;
  std::vector<int32_t> which;
  for (const int64_t row : outputs.which) which.push_back(asked.which[row]);
  for (int64_t begin = 0; begin < count; begin += tile_rows()) {
    const int64_t rows = std::min(tile_rows(), count - begin);
    const parallel::RowRange mine = model_.logits_share(rows);
    const auto all = std::span<const int32_t>(which).subspan(begin, rows);
    const auto own = all.subspan(mine.begin, mine.size());
    schedule::LogProbs tile;
    tile.which.assign(own.begin(), own.end());
    if (sampled) tile.tokens.resize(mine.size());
    tile.logprobs.resize(mine.size());
    if (num_top > 0) tile.top_tokens.resize(mine.size() * width);
    tile.top_logprobs.resize(mine.size() * width);
    evaluate(outputs.hidden.slice_rows(begin, rows), {all, mine, tile});
    found.append(tile);
  }
  return found;
}

TensorView PassRunner::whole_logits(const TensorView& hidden, const Tile& tile) {
  const TensorView logits = logits_.tensor(DType::fp32, {tile.mine.size(), settings_.vocab});
  model_.logits(hidden, logits);
  return logits;
}

/// Shortlists of the rows in this rank's share, by part of the vocabulary. Either `rows` or the
/// tokens `wanted` are given, for all rows of the tile.
std::vector<Shortlists> PassRunner::shortlists(
    const TensorView& hidden, const ShortlistShape& shape,
    std::span<const kernels::SamplingRow> rows, std::span<const int32_t> wanted,
    const std::function<void(const TensorView&)>& restrict) {
  const TensorView logits = model_.logits_part(hidden);
  if (restrict) restrict(logits);
  Shortlists mine(shape, logits.rows());
  {
    const ScopedSpan span(compute_.recorder, "shortlist", Kind::compute);
    compute_.backend.shortlist({.logits = logits,
                                .first_token = model_.vocab_range().begin,
                                .rows = rows,
                                .wanted = wanted,
                                .num_candidates = shape.num_candidates,
                                .num_top = shape.num_top,
                                .log_sums = mine.log_sums,
                                .candidates = mine.candidates,
                                .tops = mine.tops},
                               compute_.stream);
  }
  std::vector<Shortlists> parts;
  for (const auto& bytes : model_.exchange_rows(mine.bytes(), mine.rows()))
    parts.emplace_back(shape, bytes);
  return parts;
}

std::optional<ShortlistShape> PassRunner::short_shape(const kernels::SamplingParams& params,
                                                      int64_t num_top) const {
  if (settings_.whole_rows) return {};
  return shortlist_shape(params, num_top, settings_.vocab, model_.vocab_parts());
}

AllowedTokens::Place PassRunner::place_of(const schedule::Plan& plan, int32_t sample) const {
  return {plan.items[samples_[sample].item].rows.sequence, samples_[sample].ahead};
}

kernels::SamplingRow PassRunner::sampling_row(const schedule::Plan& plan, int32_t sample) const {
  const auto [item, ahead] = samples_[sample];
  const schedule::PlanItem& of = plan.items[item];
  const schedule::TurnStart& turn = turns_.at(of.rows.sequence);
  kernels::SamplingRow row{
      turn.params,
      uniform(turn.random_key, static_cast<uint64_t>(of.sampled_index + ahead)),
      {},
      {},
      turn.bias};
  if (const auto history = histories_.find(of.rows.sequence); history != histories_.end()) {
    const auto later = static_cast<size_t>(of.drafted - ahead);
    const std::span<const int32_t> tokens =
        std::span(history->second.tokens).first(history->second.tokens.size() - later);
    row.prompt = tokens.first(turn.answer_begin);
    row.output = tokens.subspan(turn.answer_begin);
  }
  // Rounding may draw the last token of all, so only those that may come are drawn from.
  const AllowedTokens::Place place = place_of(plan, sample);
  if (const int64_t most = allowed_.has(place.sequence) ? allowed_.count(place) : 0;
      most > 0 && (row.params.top_k == 0 || row.params.top_k > most))
    row.params.top_k = static_cast<int32_t>(most);
  return row;
}

/// Starts to find which tokens may come in those answers that have a shape, at the sampled places.
void PassRunner::start_finding_tokens(const schedule::Plan& plan, const Asked& sampled) {
  std::vector<AllowedTokens::Wanted> wanted;
  for (const int32_t sample : sampled.which) {
    const schedule::PlanItem& item = plan.items[samples_[sample].item];
    const int64_t sequence = item.rows.sequence;
    const bool is_wanted = !wanted.empty() && wanted.back().sequence == sequence;
    if (is_wanted || !allowed_.has(sequence)) continue;
    const std::span<const int32_t> tokens = histories_.at(sequence).tokens;
    wanted.push_back({sequence, tokens.subspan(turns_.at(sequence).answer_begin), item.drafted});
  }
  allowed_.start(std::move(wanted), compute_);
}

/// Leaves the samples' logits of only those tokens that may come there.
void PassRunner::restrict(const schedule::Plan& plan, std::span<const int32_t> samples,
                          const TensorView& logits, int64_t first_token) {
  std::vector<AllowedTokens::Place> places;
  for (const int32_t sample : samples) places.push_back(place_of(plan, sample));
  allowed_.restrict(logits, places, first_token, compute_);
}

schedule::LogProbs PassRunner::sample(const schedule::Plan& plan, const Asked& asked) {
  Asked shortened, whole;
  ShortlistShape shape{1, std::max(settings_.logprobs, 0)};
  for (size_t i = 0; i < asked.rows.size(); ++i) {
    const kernels::SamplingParams& params = sampling_row(plan, asked.which[i]).params;
    const auto needed = short_shape(params, settings_.logprobs);
    if (needed) shape.num_candidates = std::max(shape.num_candidates, needed->num_candidates);
    (needed ? shortened : whole).add(asked.which[i], asked.rows[i]);
  }
  schedule::LogProbs found = sample_short(plan, shortened, shape);
  found.append(sample_whole(plan, whole));
  return found;
}

schedule::LogProbs PassRunner::sample_whole(const schedule::Plan& plan, const Asked& asked) {
  const auto evaluate = [&](const TensorView& hidden, const Tile& tile) {
    const TensorView logits = whole_logits(hidden, tile);
    restrict(plan, tile.found.which, logits, 0);
    std::vector<kernels::SamplingRow> rows;
    for (const int32_t sample : tile.found.which) rows.push_back(sampling_row(plan, sample));
    const ScopedSpan span(compute_.recorder, "sample", Kind::compute);
    compute_.backend.sample({.logits = logits,
                             .rows = rows,
                             .num_top = settings_.logprobs,
                             .tokens = tile.found.tokens,
                             .token_logprobs = tile.found.logprobs,
                             .top_tokens = tile.found.top_tokens,
                             .top_logprobs = tile.found.top_logprobs},
                            compute_.stream);
  };
  return predict(asked, settings_.logprobs, true, evaluate);
}

schedule::LogProbs PassRunner::sample_short(const schedule::Plan& plan, const Asked& asked,
                                            const ShortlistShape& shape) {
  const auto evaluate = [&](const TensorView& hidden, const Tile& tile) {
    std::vector<kernels::SamplingRow> rows;
    for (const int32_t sample : tile.all) rows.push_back(sampling_row(plan, sample));
    const auto parts = shortlists(hidden, shape, rows, {}, [&](const TensorView& logits) {
      restrict(plan, tile.all, logits, model_.vocab_range().begin);
    });
    const auto own = std::span(rows).subspan(tile.mine.begin, tile.mine.size());
    const ScopedSpan span(compute_.recorder, "sample", Kind::compute);
    execute::sample(parts, own, compute_, candidates_, tile.found);
  };
  return predict(asked, settings_.logprobs, true, evaluate);
}

schedule::LogProbs PassRunner::score(const schedule::Plan& plan, const Asked& asked) {
  const auto shape = short_shape({}, settings_.prompt_logprobs);
  if (shape) return score_short(plan, asked, *shape);
  const auto evaluate = [&](const TensorView& hidden, const Tile& tile) {
    const TensorView logits = whole_logits(hidden, tile);
    const auto tokens = wanted_tokens(plan, tile.found.which);
    const ScopedSpan span(compute_.recorder, "log_probs", Kind::compute);
    compute_.backend.log_probs({.logits = logits,
                                .tokens = tokens,
                                .num_top = settings_.prompt_logprobs,
                                .token_logprobs = tile.found.logprobs,
                                .top_tokens = tile.found.top_tokens,
                                .top_logprobs = tile.found.top_logprobs},
                               compute_.stream);
  };
  return predict(asked, settings_.prompt_logprobs, false, evaluate);
}

schedule::LogProbs PassRunner::score_short(const schedule::Plan& plan, const Asked& asked,
                                           const ShortlistShape& shape) {
  const auto evaluate = [&](const TensorView& hidden, const Tile& tile) {
    execute::score(shortlists(hidden, shape, {}, wanted_tokens(plan, tile.all)), tile.found);
  };
  return predict(asked, settings_.prompt_logprobs, false, evaluate);
}

}  // namespace pecia::execute
