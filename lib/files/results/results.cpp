// SPDX-License-Identifier: Apache-2.0
#include "lib/files/results/results.hpp"

#include <algorithm>
#include <limits>

#include "lib/base/core/dtype.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/escaped.hpp"
#include "lib/files/disk/displaced.hpp"
#include "lib/files/disk/fault_note.hpp"
#include "lib/files/results/results_columns.hpp"
#include "lib/files/results/results_schema.hpp"

namespace pecia::io {

struct ResultsFile::Impl {
  Impl(const std::filesystem::path& path, Access access) : columns(path, access) {}

  void check(const TurnUpdate& update) const;
  int64_t output_tokens(int64_t turn) const;
  int64_t safe_tokens(int64_t turn) const;
  void write_row(const TurnUpdate& update) const;
  void write_prompt(const TurnUpdate& update) const;
  void write_products(const TurnUpdate& update) const;
  void read_products(int64_t turn, TurnResult& result) const;

  const ResultsColumns columns;
};

/// Checks the result's lengths against the layout.
void ResultsFile::Impl::check(const TurnUpdate& update) const {
  const auto& [turn, result, new_state] = update;
  const ResultsLayout& layout = columns.layout();
  const TurnState old_state = columns.state(turn);
  PECIA_CHECK(new_state != TurnState::open, "turn {} written as open", turn);
  PECIA_CHECK(old_state == TurnState::open || old_state == TurnState::partial,
              "turn {} is finished; reopen it before writing it again", turn);
  const size_t tokens = result.tokens.size(), prompt = result.prompt_logprobs.size();
  PECIA_CHECK(static_cast<int64_t>(tokens) <= layout.turns[turn].slots,
              "turn {} has {} tokens but {} slots", turn, tokens, layout.turns[turn].slots);
  PECIA_CHECK(prompt == 0 || (layout.prompt_logprobs != 0 &&
                              static_cast<int64_t>(prompt) <= layout.turns[turn].prompt_tokens),
              "turn {} has {} prompt log-probabilities; its prompt has {} tokens", turn, prompt,
              layout.turns[turn].prompt_tokens);
  const auto check_size = [&](const char* name, size_t size, int64_t rows, int64_t width) {
    PECIA_CHECK(static_cast<int64_t>(size) == rows * width, "turn {} has {} {}; {} × {} are wanted",
                turn, size, name, rows, width);
  };
  check_size("token_logprobs", result.token_logprobs.size(), tokens, 1);
  check_size("top_tokens", result.top_tokens.size(), tokens, top_tokens_width(layout.logprobs));
  check_size("top_logprobs", result.top_logprobs.size(), tokens,
             top_logprobs_width(layout.logprobs, layout.vocab));
  check_size("prompt_top_tokens", result.prompt_top_tokens.size(), prompt,
             top_tokens_width(layout.prompt_logprobs));
  check_size("prompt_top_logprobs", result.prompt_top_logprobs.size(), prompt,
             top_logprobs_width(layout.prompt_logprobs, layout.vocab));
  const ResultTurn& of = layout.turns[turn];
  const bool ends_well = new_state == TurnState::done;
  if (ends_well || !result.vectors.empty())
    check_size("vectors", result.vectors.size(), of.vectors, layout.vector_width);
  if (ends_well || !result.scores.empty()) {
    check_size("scores", result.scores.size(), of.scores, 1);
    check_size("score_logprobs", result.score_logprobs.size(), of.score_tokens, 1);
  }
  PECIA_CHECK(static_cast<int64_t>(result.mode.size()) <= mode_bytes, "mode '{}' is longer than {}",
              result.mode, mode_bytes);
  PECIA_CHECK(
      result.text_bytes < 0 || columns.has("/text_bytes"),
      "turn {} ends by a stop string, which this file of an earlier version has no place for",
      turn);
  if (old_state == TurnState::open) return;
  const int64_t safe = safe_tokens(turn);
  const auto on_disk = columns.get<int32_t>("/tokens", columns.first_slot(turn), safe);
  PECIA_CHECK(safe <= static_cast<int64_t>(tokens) &&
                  std::equal(on_disk.begin(), on_disk.end(), result.tokens.begin()),
              "turn {} is partial and does not go on from its {} tokens in the file; reopen it",
              turn, safe);
}

int64_t ResultsFile::Impl::output_tokens(int64_t turn) const {
  const auto tokens = columns.get<int32_t>("/output_tokens", turn);
  const int64_t slots = columns.layout().turns[turn].slots;
  if (tokens < 0 || tokens > slots)
    fail<InputError>("{}: /output_tokens[{}] is {} of {} slots: the file is damaged",
                     columns.file().path().string(), turn, tokens, slots);
  return tokens;
}

/// The number of the turn's slots that are already safe on disk and are not written again.
int64_t ResultsFile::Impl::safe_tokens(int64_t turn) const {
  return columns.state(turn) == TurnState::partial ? output_tokens(turn) : 0;
}

/// Writes everything except the state. For a partial turn it also omits the safe slots and
/// /output_tokens.
void ResultsFile::Impl::write_row(const TurnUpdate& update) const {
  const auto& [turn, result, new_state] = update;
  const ResultsLayout& layout = columns.layout();
  const int64_t safe = safe_tokens(turn);
  const auto put_slots = [&](const char* dataset, const auto& values, int64_t width) {
    columns.put(dataset, (columns.first_slot(turn) + safe) * width,
                std::span(values).subspan(safe * width));
  };
  put_slots("/tokens", result.tokens, 1);
  put_slots("/token_logprob", result.token_logprobs, 1);
  if (layout.logprobs > 0) put_slots("/top_tokens", result.top_tokens, layout.logprobs);
  if (layout.logprobs != 0)
    put_slots("/top_logprobs", result.top_logprobs,
              top_logprobs_width(layout.logprobs, layout.vocab));
  if (columns.state(turn) == TurnState::open) {
    if (layout.prompt_logprobs != 0) write_prompt(update);
    write_products(update);
    columns.put("/output_tokens", turn, static_cast<int32_t>(result.tokens.size()));
  }
  columns.put("/prompt_tokens", turn, result.prompt_tokens);
  columns.put("/cached_tokens", turn, result.cached_tokens);
  if (columns.has("/truncated_tokens"))
    columns.put("/truncated_tokens", turn, result.truncated_tokens);
  columns.put("/finish_reason", turn, result.finish_reason);
  if (columns.has("/text_bytes")) columns.put("/text_bytes", turn, result.text_bytes);
  columns.put_text("/error", turn, result.error);
  columns.put("/queue_s", turn, result.queue_s);
  columns.put("/ttft_s", turn, result.ttft_s);
  columns.put("/decode_s", turn, result.decode_s);
  columns.put("/prefill_compute_s", turn, result.prefill_compute_s);
  columns.put("/prefill_comm_s", turn, result.prefill_comm_s);
  columns.put("/decode_compute_s", turn, result.decode_compute_s);
  columns.put("/decode_comm_s", turn, result.decode_comm_s);
  columns.put_text("/mode", turn, result.mode);
  columns.put("/replica", turn, result.replica);
  if (columns.has("/yields")) columns.put("/yields", turn, result.yields);
  if (columns.has("/draft_accepted")) columns.put("/draft_accepted", turn, result.draft_accepted);
}

void ResultsFile::Impl::write_prompt(const TurnUpdate& update) const {
  const auto& [turn, result, new_state] = update;
  const ResultsLayout& layout = columns.layout();
  const int64_t rows = layout.turns[turn].prompt_tokens, begin = columns.first_prompt_slot(turn);
  std::vector<float> logprobs = result.prompt_logprobs;
  logprobs.resize(rows, std::numeric_limits<float>::quiet_NaN());
  columns.put("/prompt_token_logprob", begin, std::span<const float>(logprobs));
  if (const int64_t width = top_tokens_width(layout.prompt_logprobs); width > 0) {
    std::vector<int32_t> tokens = result.prompt_top_tokens;
    tokens.resize(rows * width, -1);
    columns.put("/prompt_top_tokens", begin * width, std::span<const int32_t>(tokens));
  }
  columns.put("/prompt_top_logprobs",
              begin * top_logprobs_width(layout.prompt_logprobs, layout.vocab),
              std::span<const float>(result.prompt_top_logprobs));
}

void ResultsFile::Impl::write_products(const TurnUpdate& update) const {
  const auto& [turn, result, new_state] = update;
  if (!result.vectors.empty()) {
    const int64_t begin = columns.first_vector(turn) * columns.layout().vector_width;
    if (columns.layout().vector_type == VectorType::fp16) {
      std::vector<uint16_t> halves;
      halves.reserve(result.vectors.size());
      for (const float value : result.vectors) halves.push_back(float_to_fp16(value));
      columns.put("/vectors", begin, std::span<const uint16_t>(halves));
    } else {
      columns.put("/vectors", begin, std::span<const float>(result.vectors));
    }
  }
  if (result.scores.empty()) return;
  columns.put("/scores", columns.first_score(turn), std::span<const double>(result.scores));
  columns.put("/score_token_logprob", columns.first_score_token(turn),
              std::span<const float>(result.score_logprobs));
}

/// A failed turn has none.
void ResultsFile::Impl::read_products(int64_t turn, TurnResult& result) const {
  if (columns.state(turn) != TurnState::done) return;
  const ResultTurn& of = columns.layout().turns[turn];
  if (of.vectors > 0) {
    const int64_t width = columns.layout().vector_width;
    const int64_t begin = columns.first_vector(turn) * width, count = of.vectors * width;
    if (columns.layout().vector_type == VectorType::fp16)
      for (const uint16_t half : columns.get<uint16_t>("/vectors", begin, count))
        result.vectors.push_back(fp16_to_float(half));
    else
      result.vectors = columns.get<float>("/vectors", begin, count);
  }
  if (of.scores == 0) return;
  result.scores = columns.get<double>("/scores", columns.first_score(turn), of.scores);
  result.score_logprobs =
      columns.get<float>("/score_token_logprob", columns.first_score_token(turn), of.score_tokens);
}

ResultsFile::ResultsFile(const std::filesystem::path& path, Access access)
    : impl_([&] {
        const FaultNote note(path);
        return std::make_unique<Impl>(path, access);
      }()) {}
ResultsFile::~ResultsFile() = default;
ResultsFile::ResultsFile(ResultsFile&&) noexcept = default;
ResultsFile& ResultsFile::operator=(ResultsFile&&) noexcept = default;

const ResultsLayout& ResultsFile::layout() const {
  return impl_->columns.layout();
}
int64_t ResultsFile::num_turns() const {
  return static_cast<int64_t>(impl_->columns.layout().turns.size());
}
TurnState ResultsFile::state(int64_t turn) const {
  return impl_->columns.state(turn);
}

std::vector<TurnState> ResultsFile::states() const {
  return impl_->columns.states();
}

int64_t ResultsFile::output_tokens(int64_t turn) const {
  PECIA_CHECK(state(turn) != TurnState::open, "turn {} is open: it has no tokens", turn);
  return impl_->output_tokens(turn);
}

std::vector<int32_t> ResultsFile::tokens(int64_t turn) const {
  const ResultsColumns& in = impl_->columns;
  const int64_t first = in.first_slot(turn);
  auto tokens = in.get<int32_t>("/tokens", first, output_tokens(turn));
  const int64_t vocab = in.layout().vocab > 0 ? in.layout().vocab : int64_t{1} << 31;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      fail<InputError>(
          "{}: /tokens[{}] is {}, and the vocabulary has {} (row {}, request '{}', turn {}): the "
          "file is damaged; put a copy of it in its place, or begin anew with --fresh",
          in.file().path().string(), first + static_cast<int64_t>(i), tokens[i], vocab, turn,
          in.layout().turns[turn].request_id, in.layout().turns[turn].turn);
  return tokens;
}

TurnResult ResultsFile::read(int64_t turn) const {
  PECIA_CHECK(state(turn) != TurnState::open, "turn {} is open: there is nothing to read", turn);
  const ResultsColumns& in = impl_->columns;
  const ResultsLayout& layout = in.layout();
  TurnResult result;
  const int64_t slot = in.first_slot(turn);
  result.tokens = this->tokens(turn);
  const auto tokens = static_cast<int64_t>(result.tokens.size());
  result.token_logprobs = in.get<float>("/token_logprob", slot, tokens);
  if (const int64_t width = top_tokens_width(layout.logprobs); width > 0)
    result.top_tokens = in.get<int32_t>("/top_tokens", slot * width, tokens * width);
  if (const int64_t width = top_logprobs_width(layout.logprobs, layout.vocab); width > 0)
    result.top_logprobs = in.get<float>("/top_logprobs", slot * width, tokens * width);
  if (layout.prompt_logprobs != 0) {
    const int64_t begin = in.first_prompt_slot(turn), rows = layout.turns[turn].prompt_tokens;
    result.prompt_logprobs = in.get<float>("/prompt_token_logprob", begin, rows);
    if (const int64_t width = top_tokens_width(layout.prompt_logprobs); width > 0)
      result.prompt_top_tokens = in.get<int32_t>("/prompt_top_tokens", begin * width, rows * width);
    const int64_t width = top_logprobs_width(layout.prompt_logprobs, layout.vocab);
    result.prompt_top_logprobs = in.get<float>("/prompt_top_logprobs", begin * width, rows * width);
  }
  result.prompt_tokens = in.get<int32_t>("/prompt_tokens", turn);
  result.cached_tokens = in.get<int32_t>("/cached_tokens", turn);
  if (in.has("/truncated_tokens"))
    result.truncated_tokens = in.get<int32_t>("/truncated_tokens", turn);
  result.finish_reason = in.get<FinishReason>("/finish_reason", turn);
  if (result.finish_reason > FinishReason::failed)
    fail<InputError>("{}: /finish_reason[{}] is {}: the file is damaged", in.file().path().string(),
                     turn, static_cast<int>(result.finish_reason));
  if (in.has("/text_bytes")) result.text_bytes = in.get<int64_t>("/text_bytes", turn);
  result.error = in.get_text("/error", turn);
  result.queue_s = in.get<float>("/queue_s", turn);
  result.ttft_s = in.get<float>("/ttft_s", turn);
  result.decode_s = in.get<float>("/decode_s", turn);
  result.prefill_compute_s = in.get<float>("/prefill_compute_s", turn);
  result.prefill_comm_s = in.get<float>("/prefill_comm_s", turn);
  result.decode_compute_s = in.get<float>("/decode_compute_s", turn);
  result.decode_comm_s = in.get<float>("/decode_comm_s", turn);
  result.mode = in.get_text("/mode", turn);
  result.replica = in.get<int32_t>("/replica", turn);
  if (in.has("/yields")) result.yields = in.get<int32_t>("/yields", turn);
  if (in.has("/draft_accepted")) result.draft_accepted = in.get<int32_t>("/draft_accepted", turn);
  impl_->read_products(turn, result);
  return result;
}

void ResultsFile::check(std::span<const TurnUpdate> updates) const {
  for (const TurnUpdate& update : updates) impl_->check(update);
}

void ResultsFile::write(int64_t turn, const TurnResult& result, TurnState state) {
  const TurnUpdate update{turn, result, state};
  write_all(std::span(&update, 1));
}

void ResultsFile::write_all(std::span<const TurnUpdate> updates) {
  if (updates.empty()) return;
  const ResultsColumns& columns = impl_->columns;
  check(updates);
  try {
    bool any_partial = false;
    for (const TurnUpdate& update : updates) impl_->write_row(update);
    columns.file().sync_data();
    // The count of a partial turn declares its tokens safe, so it is written after they are on
    // disk.
    for (const TurnUpdate& update : updates) {
      if (columns.state(update.turn) != TurnState::partial) continue;
      any_partial = true;
      columns.put("/output_tokens", update.turn, static_cast<int32_t>(update.result.tokens.size()));
    }
    if (any_partial) columns.file().sync_data();
    for (const TurnUpdate& update : updates) columns.put("/state", update.turn, update.state);
    columns.file().sync_data();
  } catch (const SystemError& error) {
    fail_unrecorded(error, columns.layout(), updates);
  }
  require_in_place();
}

bool ResultsFile::is_in_place() const {
  return impl_->columns.file().is_in_place();
}

void ResultsFile::require_in_place() const {
  io::require_in_place(impl_->columns.file());
}

void ResultsFile::reopen(int64_t turn) {
  if (state(turn) == TurnState::open) return;
  impl_->columns.put("/state", turn, TurnState::open);
  impl_->columns.file().sync_data();
}

void fail_unrecorded(const Error& error, const ResultsLayout& layout,
                     std::span<const TurnUpdate> updates) {
  const TurnUpdate& first = updates.front();
  const ResultTurn& turn = layout.turns[first.turn];
  fail<SystemError>(
      "{}; row {} (request '{}', turn {}) {} not recorded; make room and run the same command to "
      "continue",
      error.what(), first.turn, escaped(turn.request_id), turn.turn + 1,
      updates.size() > 1 ? fmt::format("and {} more were", updates.size() - 1) : "was");
}

}  // namespace pecia::io
