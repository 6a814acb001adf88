#include "lib/runtime/executor.hpp"

#include <algorithm>

#include "lib/core/random.hpp"

namespace pecia::runtime {

using report::Kind;
using report::ScopedSpan;

Executor::Executor(const Settings& settings, model::Model& model, context::Attention& attention,
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
  attention_.begin_pass(plan.pass(), plan.ring, plan.sharding);

  // The rows of this rank's block, and which of them somebody asks about.
  model::Rows rows;
  std::map<std::pair<int32_t, int64_t>, int64_t> row_at;  // (item, position) → row
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const PlanItem& item = plan.items[i];
    for (const auto& range : rows_of(item.rows, settings_.ring_size, settings_.ring_rank))
      for (int64_t position = range.begin; position < range.end; ++position) {
        const bool asked =
            !plan.targets.empty() || position + 1 == item.rows.first + item.rows.count;
        if (asked)
          row_at[{static_cast<int32_t>(i), position}] = static_cast<int64_t>(rows.tokens.size());
        rows.tokens.push_back(item.tokens[position - item.rows.first]);
        rows.rope_lengths.push_back(std::max(item.prompt_end, position + 1));
      }
  }
  Asked sampled, targets;
  const auto ask = [&](Asked& asked, size_t which, int32_t item, int64_t position) {
    const auto row = row_at.find({item, position});
    if (row == row_at.end()) return;
    asked.which.push_back(static_cast<int32_t>(which));
    asked.rows.push_back(row->second);
  };
  for (size_t i = 0; i < plan.items.size(); ++i)
    if (plan.items[i].sampled_index >= 0)
      ask(sampled, i, static_cast<int32_t>(i),
          plan.items[i].rows.first + plan.items[i].rows.count - 1);
  for (size_t i = 0; i < plan.targets.size(); ++i)
    ask(targets, i, plan.targets[i].item, plan.targets[i].position);

  model_.forward(rows, attention_);
  Outcome outcome;
  outcome.sampled = sample(plan, sampled);
  outcome.targets = score(plan, targets);
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

namespace {

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

/// Evaluates the rows asked about that fall to this rank, tile by tile. `evaluate` fills a tile
/// whose `which` is set and whose other members have room.
LogProbs Executor::predict(
    const Asked& asked, int num_top, bool sampled,
    const std::function<void(const TensorView& logits, LogProbs& tile)>& evaluate) {
  const model::Model::Outputs outputs = model_.outputs(asked.rows);
  const int64_t count = outputs.hidden.rows();
  const int64_t width = num_top < 0 ? settings_.vocab : num_top;
  LogProbs found;
  for (int64_t begin = 0; begin < count; begin += tile_rows()) {
    const TensorView hidden =
        outputs.hidden.slice_rows(begin, std::min(tile_rows(), count - begin));
    const parallel::RowRange mine = model_.logits_share(hidden.rows());
    const TensorView logits = logits_.tensor(DType::fp32, {mine.size(), settings_.vocab});
    model_.logits(hidden, logits);
    LogProbs tile;
    for (int64_t i = mine.begin; i < mine.end; ++i)
      tile.which.push_back(asked.which[outputs.which[begin + i]]);
    if (sampled) tile.tokens.resize(mine.size());
    tile.logprobs.resize(mine.size());
    if (num_top > 0) tile.top_tokens.resize(mine.size() * width);
    tile.top_logprobs.resize(mine.size() * width);
    evaluate(logits, tile);
    append(found.which, tile.which);
    append(found.tokens, tile.tokens);
    append(found.logprobs, tile.logprobs);
    append(found.top_tokens, tile.top_tokens);
    append(found.top_logprobs, tile.top_logprobs);
  }
  return found;
}

LogProbs Executor::sample(const Plan& plan, const Asked& asked) {
  const auto evaluate = [&](const TensorView& logits, LogProbs& tile) {
    std::vector<kernels::SamplingRow> rows;
    for (const int32_t index : tile.which) {
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
    const ScopedSpan span(recorder_, "sample", Kind::compute);
    backend_.sample({.logits = logits,
                     .rows = rows,
                     .num_top = settings_.logprobs,
                     .tokens = tile.tokens,
                     .token_logprobs = tile.logprobs,
                     .top_tokens = tile.top_tokens,
                     .top_logprobs = tile.top_logprobs},
                    stream_);
  };
  return predict(asked, settings_.logprobs, true, evaluate);
}

LogProbs Executor::score(const Plan& plan, const Asked& asked) {
  const auto evaluate = [&](const TensorView& logits, LogProbs& tile) {
    std::vector<int32_t> tokens;
    for (const int32_t target : tile.which) tokens.push_back(plan.targets[target].token);
    const ScopedSpan span(recorder_, "log_probs", Kind::compute);
    backend_.log_probs({.logits = logits,
                        .tokens = tokens,
                        .num_top = settings_.prompt_logprobs,
                        .token_logprobs = tile.logprobs,
                        .top_tokens = tile.top_tokens,
                        .top_logprobs = tile.top_logprobs},
                       stream_);
  };
  return predict(asked, settings_.prompt_logprobs, false, evaluate);
}

}  // namespace pecia::runtime
