// SPDX-License-Identifier: Apache-2.0
#include "lib/files/results/results_schema.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "lib/base/core/error.hpp"
#include "lib/files/text/utf8.hpp"

namespace pecia::io {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they are in memory");

void check_layout(const ResultsLayout& layout) {
  PECIA_CHECK(layout.vocab >= 0 && layout.logprobs >= -1 && layout.prompt_logprobs >= -1,
              "vocabulary {}, logprobs {}, prompt_logprobs {}", layout.vocab, layout.logprobs,
              layout.prompt_logprobs);
  for (const ResultTurn& turn : layout.turns) {
    PECIA_CHECK(turn.slots >= 0 && turn.slots <= std::numeric_limits<int32_t>::max(),
                "{} slots of request '{}'", turn.slots, turn.request_id);
    PECIA_CHECK(
        turn.prompt_tokens >= 0 && turn.prompt_tokens <= std::numeric_limits<int32_t>::max(),
        "{} prompt tokens of request '{}'", turn.prompt_tokens, turn.request_id);
    PECIA_CHECK(turn.vectors >= 0 && turn.scores >= 0 && turn.score_tokens >= 0 &&
                    turn.score_tokens <= std::numeric_limits<int32_t>::max() &&
                    (turn.vectors == 0 || layout.vector_width > 0),
                "{} vectors of {} and {} scores of {} tokens of request '{}'", turn.vectors,
                layout.vector_width, turn.scores, turn.score_tokens, turn.request_id);
    PECIA_CHECK(is_utf8(turn.request_id) && turn.request_id.find('\0') == std::string::npos,
                "a request id that is no UTF-8 text");
  }
}

template <typename Count>
std::vector<int64_t> offsets_of(const std::vector<ResultTurn>& turns, Count ResultTurn::*size) {
  std::vector<int64_t> offsets = {0};
  offsets.reserve(turns.size() + 1);
  for (const ResultTurn& turn : turns) {
    int64_t end = 0;
    if (__builtin_add_overflow(offsets.back(), int64_t{turn.*size}, &end))
      fail<InputError>("the job asks for more than 2^63 tokens; lower max_new_tokens");
    offsets.push_back(end);
  }
  return offsets;
}

/// IEEE binary16: the sign, 5 bits of the exponent, 10 of the mantissa. HDF5 1.10 has no name for it.
Hdf5Type half_type() {
  Hdf5Type type(H5Tcopy(H5T_IEEE_F32LE));
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

}  // namespace

int64_t ResultsDataset::bytes() const {
  int64_t total = element_bytes;
  for (const int64_t extent : extents)
    if (__builtin_mul_overflow(total, extent, &total))
      fail<InputError>(
          "the results' {} would need more than 2^63 bytes; ask for fewer new tokens or "
          "log-probabilities",
          name);
  return total;
}

int64_t top_tokens_width(int k) {
  return std::max(k, 0);
}
int64_t top_logprobs_width(int k, int64_t vocab) {
  return k == -1 ? vocab : k;
}

std::vector<int64_t> slot_offsets(const ResultsLayout& layout) {
  return offsets_of(layout.turns, &ResultTurn::slots);
}
std::vector<int64_t> prompt_slot_offsets(const ResultsLayout& layout) {
  return offsets_of(layout.turns, &ResultTurn::prompt_tokens);
}

std::vector<int64_t> vector_offsets(const ResultsLayout& layout) {
  return offsets_of(layout.turns, &ResultTurn::vectors);
}
std::vector<int64_t> score_offsets(const ResultsLayout& layout) {
  return offsets_of(layout.turns, &ResultTurn::scores);
}
std::vector<int64_t> score_token_offsets(const ResultsLayout& layout) {
  return offsets_of(layout.turns, &ResultTurn::score_tokens);
}

std::vector<ResultsDataset> results_datasets(const ResultsLayout& layout) {
  check_layout(layout);
  const auto num_turns = static_cast<int64_t>(layout.turns.size());
  size_t id_bytes = 1;
  for (const ResultTurn& turn : layout.turns) id_bytes = std::max(id_bytes, turn.request_id.size());
  using enum ResultsType;

  std::vector<ResultsDataset> datasets = {
      {"/state", uint8, {num_turns}, 1},
      {"/request_id", text, {num_turns}, static_cast<int64_t>(id_bytes)},
      {"/shard", int32, {num_turns}, 4},
      {"/request", int64, {num_turns}, 8},
      {"/turn", int32, {num_turns}, 4},
      {"/slot_offsets", int64, {num_turns + 1}, 8},
      {"/prompt_tokens", int32, {num_turns}, 4},
      {"/cached_tokens", int32, {num_turns}, 4},
      {"/output_tokens", int32, {num_turns}, 4},
      {"/truncated_tokens", int32, {num_turns}, 4, true},
      {"/finish_reason", finish_reason, {num_turns}, 1},
      {"/error", text, {num_turns}, error_bytes},
      {"/queue_s", float32, {num_turns}, 4},
      {"/ttft_s", float32, {num_turns}, 4},
      {"/decode_s", float32, {num_turns}, 4},
      {"/prefill_compute_s", float32, {num_turns}, 4},
      {"/prefill_comm_s", float32, {num_turns}, 4},
      {"/decode_compute_s", float32, {num_turns}, 4},
      {"/decode_comm_s", float32, {num_turns}, 4},
      {"/mode", text, {num_turns}, mode_bytes},
      {"/replica", int32, {num_turns}, 4},
      {"/text_bytes", int64, {num_turns}, 8, true},
      {"/settings", int32, {num_turns}, 4, true},
      {"/yields", int32, {num_turns}, 4, true},
      {"/draft_accepted", int32, {num_turns}, 4, true},
  };
  const int64_t slots = slot_offsets(layout).back();
  datasets.push_back({"/tokens", int32, {slots}, 4});
  datasets.push_back({"/token_logprob", float32, {slots}, 4});
  if (layout.logprobs > 0) datasets.push_back({"/top_tokens", int32, {slots, layout.logprobs}, 4});
  if (layout.logprobs != 0)
    datasets.push_back(
        {"/top_logprobs", float32, {slots, top_logprobs_width(layout.logprobs, layout.vocab)}, 4});
  if (const int64_t vectors = vector_offsets(layout).back(); vectors > 0) {
    const bool half = layout.vector_type == VectorType::fp16;
    datasets.push_back({"/vector_offsets", int64, {num_turns + 1}, 8});
    datasets.push_back(
        {"/vectors", half ? float16 : float32, {vectors, layout.vector_width}, half ? 2 : 4});
  }
  if (const int64_t scores = score_offsets(layout).back(); scores > 0) {
    datasets.push_back({"/score_offsets", int64, {num_turns + 1}, 8});
    datasets.push_back({"/scores", float64, {scores}, 8});
    datasets.push_back({"/score_token_offsets", int64, {num_turns + 1}, 8});
    datasets.push_back({"/score_token_logprob", float32, {score_token_offsets(layout).back()}, 4});
  }
  if (layout.prompt_logprobs == 0) return datasets;

  const int k = layout.prompt_logprobs;
  const int64_t prompt_slots = prompt_slot_offsets(layout).back();
  datasets.push_back({"/prompt_slot_offsets", int64, {num_turns + 1}, 8});
  datasets.push_back({"/prompt_token_logprob", float32, {prompt_slots}, 4});
  if (k > 0) datasets.push_back({"/prompt_top_tokens", int32, {prompt_slots, k}, 4});
  datasets.push_back(
      {"/prompt_top_logprobs", float32, {prompt_slots, top_logprobs_width(k, layout.vocab)}, 4});
  return datasets;
}

Hdf5Type hdf5_type(const ResultsDataset& dataset) {
  switch (dataset.type) {
    case ResultsType::uint8:
      return Hdf5Type(H5Tcopy(H5T_STD_U8LE));
    case ResultsType::int32:
      return Hdf5Type(H5Tcopy(H5T_STD_I32LE));
    case ResultsType::int64:
      return Hdf5Type(H5Tcopy(H5T_STD_I64LE));
    case ResultsType::float16:
      return half_type();
    case ResultsType::float32:
      return Hdf5Type(H5Tcopy(H5T_IEEE_F32LE));
    case ResultsType::float64:
      return Hdf5Type(H5Tcopy(H5T_IEEE_F64LE));
    case ResultsType::text:
      return hdf5_text_type(dataset.element_bytes);
    case ResultsType::finish_reason:
      break;
  }
  Hdf5Type type(H5Tenum_create(H5T_STD_U8LE));
  const std::pair<const char*, FinishReason> members[] = {{"none", FinishReason::none},
                                                          {"stop", FinishReason::stop},
                                                          {"length", FinishReason::length},
                                                          {"failed", FinishReason::failed}};
  for (const auto& [name, value] : members) H5Tenum_insert(type.get(), name, &value);
  return type;
}

}  // namespace pecia::io
