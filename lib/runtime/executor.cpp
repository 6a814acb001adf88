#include "lib/runtime/executor.hpp"

#include <algorithm>

#include "lib/core/random.hpp"

namespace pecia::runtime {

using report::Kind;
using report::ScopedSpan;

Executor::Executor(const Settings& settings, model::Model& model, context::RingAttention& attention,
                   kernels::Backend& backend, device::Stream& stream, report::Recorder& recorder)
    : settings_(settings),
      model_(model),
      attention_(attention),
      backend_(backend),
      stream_(stream),
      recorder_(recorder) {}

void Executor::begin(const Plan& plan) {
  for (const int64_t sequence : plan.removed) {
    attention_.remove(sequence);
    turns_.erase(sequence);
    histories_.erase(sequence);
  }
  for (const NewSequence& added : plan.added) {
    const bool child = added.parent != NewSequence::no_parent;
    attention_.add(added.sequence, added.reserved,
                   child ? std::optional(added.parent) : std::nullopt);
    if (added.keeps_tokens != 0)
      histories_[added.sequence] = child ? histories_.at(added.parent) : History{};
  }
  for (const TurnStart& turn : plan.turns) turns_[turn.sequence] = turn;
  for (const PlanItem& item : plan.items)
    if (const auto history = histories_.find(item.rows.sequence); history != histories_.end())
      history->second.tokens.insert(history->second.tokens.end(), item.tokens.begin(),
                                    item.tokens.end());
}

Outcome Executor::execute(const Plan& plan) {
  const report::Totals before = recorder_.totals();
  recorder_.set_pass(plan.number);
  begin(plan);
  attention_.begin_pass(plan.pass(), plan.ring);

  // This rank's rows, and which of them somebody asks about.
  model::Rows rows;
  std::map<std::pair<int32_t, int64_t>, int64_t> row_at;  // (item, position) → row
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const PlanItem& item = plan.items[i];
    for (const auto& range : rows_of(item.rows, settings_.ring_size, settings_.rank))
      for (int64_t position = range.begin; position < range.end; ++position) {
        const bool asked =
            !plan.targets.empty() || position + 1 == item.rows.first + item.rows.count;
        if (asked)
          row_at[{static_cast<int32_t>(i), position}] = static_cast<int64_t>(rows.tokens.size());
        rows.tokens.push_back(item.tokens[position - item.rows.first]);
        rows.rope_lengths.push_back(std::max(item.prompt_end, position + 1));
      }
  }
  std::vector<int32_t> sampled, targets;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const auto last = plan.items[i].rows.first + plan.items[i].rows.count - 1;
    const auto row = row_at.find({static_cast<int32_t>(i), last});
    if (plan.items[i].sampled_index < 0 || row == row_at.end()) continue;
    sampled.push_back(static_cast<int32_t>(i));
    rows.output_rows.push_back(row->second);
  }
  for (size_t i = 0; i < plan.targets.size(); ++i) {
    const auto row = row_at.find({plan.targets[i].item, plan.targets[i].position});
    if (row == row_at.end()) continue;
    targets.push_back(static_cast<int32_t>(i));
    rows.output_rows.push_back(row->second);
  }

  const TensorView hidden = model_.forward(rows, attention_);
  const auto count = static_cast<int64_t>(sampled.size());
  Outcome outcome;
  outcome.sampled = sample(plan, hidden.slice_rows(0, count), sampled);
  outcome.targets = score(plan, hidden.slice_rows(count, hidden.rows() - count), targets);
  const report::Totals& after = recorder_.totals();
  outcome.compute_s = after.compute_s - before.compute_s;
  outcome.comm_s = after.comm_s - before.comm_s;
  return outcome;
}

/// So many rows that their logits take some 32 MB.
int64_t Executor::tile_rows() const {
  return std::clamp<int64_t>((int64_t{32} << 20) / (settings_.vocab * size_of(DType::fp32)), 1,
                             512);
}

TensorView Executor::logits(const TensorView& hidden) {
  const TensorView logits = logits_.tensor(DType::fp32, {hidden.rows(), settings_.vocab});
  model_.logits(hidden, logits);
  return logits;
}

namespace {
/// Room for the top log-probabilities of `rows` rows.
void make_room(LogProbs& found, int64_t rows, int wanted, int64_t vocab) {
  found.logprobs.resize(rows);
  if (wanted > 0) found.top_tokens.resize(rows * wanted);
  found.top_logprobs.resize(rows * (wanted < 0 ? vocab : wanted));
}
/// Rows [begin, begin + count) of `width` values each.
template <typename T>
std::span<T> part(std::vector<T>& values, int64_t begin, int64_t count, int64_t width) {
  return values.empty() ? std::span<T>()
                        : std::span<T>(values).subspan(begin * width, count * width);
}
}  // namespace

LogProbs Executor::sample(const Plan& plan, const TensorView& hidden,
                          const std::vector<int32_t>& items) {
  LogProbs found;
  found.which = items;
  const auto count = static_cast<int64_t>(items.size());
  make_room(found, count, settings_.logprobs, settings_.vocab);
  found.tokens.resize(count);
  const int64_t width = settings_.logprobs < 0 ? settings_.vocab : settings_.logprobs;
  std::vector<kernels::SamplingRow> rows;
  for (const int32_t index : items) {
    const PlanItem& item = plan.items[index];
    const TurnStart& turn = turns_.at(item.rows.sequence);
    kernels::SamplingRow row{
        turn.params, uniform(turn.random_key, static_cast<uint64_t>(item.sampled_index)), {}, {}};
    if (const auto history = histories_.find(item.rows.sequence); history != histories_.end()) {
      const std::span<const int32_t> tokens = history->second.tokens;
      row.prompt = tokens.first(turn.answer_begin);
      row.output = tokens.subspan(turn.answer_begin);
    }
    rows.push_back(row);
  }
  for (int64_t begin = 0; begin < count; begin += tile_rows()) {
    const int64_t tile = std::min(tile_rows(), count - begin);
    const TensorView scores = logits(hidden.slice_rows(begin, tile));
    const ScopedSpan span(recorder_, "sample", Kind::compute);
    backend_.sample({.logits = scores,
                     .rows = std::span<const kernels::SamplingRow>(rows).subspan(begin, tile),
                     .num_top = settings_.logprobs,
                     .tokens = part(found.tokens, begin, tile, 1),
                     .token_logprobs = part(found.logprobs, begin, tile, 1),
                     .top_tokens = part(found.top_tokens, begin, tile, width),
                     .top_logprobs = part(found.top_logprobs, begin, tile, width)},
                    stream_);
  }
  return found;
}

LogProbs Executor::score(const Plan& plan, const TensorView& hidden,
                         const std::vector<int32_t>& targets) {
  LogProbs found;
  found.which = targets;
  const auto count = static_cast<int64_t>(targets.size());
  make_room(found, count, settings_.prompt_logprobs, settings_.vocab);
  const int64_t width = settings_.prompt_logprobs < 0 ? settings_.vocab : settings_.prompt_logprobs;
  std::vector<int32_t> tokens;
  for (const int32_t target : targets) tokens.push_back(plan.targets[target].token);
  for (int64_t begin = 0; begin < count; begin += tile_rows()) {
    const int64_t tile = std::min(tile_rows(), count - begin);
    const TensorView scores = logits(hidden.slice_rows(begin, tile));
    const ScopedSpan span(recorder_, "log_probs", Kind::compute);
    backend_.log_probs({.logits = scores,
                        .tokens = std::span<const int32_t>(tokens).subspan(begin, tile),
                        .num_top = settings_.prompt_logprobs,
                        .token_logprobs = part(found.logprobs, begin, tile, 1),
                        .top_tokens = part(found.top_tokens, begin, tile, width),
                        .top_logprobs = part(found.top_logprobs, begin, tile, width)},
                       stream_);
  }
  return found;
}

}  // namespace pecia::runtime
