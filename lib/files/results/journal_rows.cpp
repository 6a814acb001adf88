// SPDX-License-Identifier: Apache-2.0
#include "lib/files/results/journal_rows.hpp"

#include <zlib.h>

#include <cstring>
#include <numeric>
#include <string_view>

#include "lib/base/core/archive.hpp"
#include "lib/files/disk/sha256.hpp"

namespace pecia::io {
namespace {

constexpr std::string_view journal_schema = "pecia.journal/4\n";
constexpr int64_t length_bytes = sizeof(int64_t), frame_bytes = length_bytes + sizeof(uint32_t);

template <typename A>
void visit_row(A& archive, TurnResult& row) {
  archive(row.tokens), archive(row.token_logprobs), archive(row.top_tokens);
  archive(row.top_logprobs), archive(row.prompt_logprobs), archive(row.prompt_top_tokens);
  archive(row.prompt_top_logprobs), archive(row.prompt_tokens), archive(row.cached_tokens);
  archive(row.truncated_tokens), archive(row.finish_reason), archive(row.text_bytes);
  archive(row.error), archive(row.queue_s), archive(row.ttft_s), archive(row.decode_s);
  archive(row.prefill_compute_s), archive(row.prefill_comm_s), archive(row.decode_compute_s);
  archive(row.decode_comm_s), archive(row.mode), archive(row.replica), archive(row.yields);
  archive(row.draft_accepted);
  archive(row.vectors), archive(row.scores), archive(row.score_logprobs);
}

template <typename T>
T number_at(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

uint32_t checksum(int64_t length, std::span<const std::byte> body) {
  const auto add = [](uLong sum, const void* data, size_t bytes) {
    return crc32_z(sum, static_cast<const Bytef*>(data), bytes);
  };
  return static_cast<uint32_t>(
      add(add(crc32_z(0, nullptr, 0), &length, sizeof(length)), body.data(), body.size()));
}

}  // namespace

std::string journal_head(const ResultsLayout& results) {
  int64_t slots = 0, vectors = 0, score_tokens = 0;
  for (const ResultTurn& turn : results.turns) {
    slots += turn.slots;
    vectors += turn.vectors, score_tokens += turn.score_tokens;
  }
  Sha256 hash;
  for (const std::string& text : results.settings) hash.update(text + '\n');
  hash.update(fmt::format(
      "{}\n{} turns, {} slots, vocabulary {}, log-probabilities {} and {}, {} vectors of {}, {} "
      "tokens weighed",
      results.identity, results.turns.size(), slots, results.vocab, results.logprobs,
      results.prompt_logprobs, vectors, results.vector_width, score_tokens));
  return fmt::format("{}{}\n", journal_schema, hash.hex());
}

void append_row(const TurnUpdate& row, std::vector<std::byte>& to) {
  Writer writer;
  writer(row.turn), writer(row.state);
  visit_row(writer, const_cast<TurnResult&>(row.result));
  const std::vector<std::byte> body = writer.take();
  const auto length = static_cast<int64_t>(body.size());
  const uint32_t sum = checksum(length, body);
  const auto add = [&](std::span<const std::byte> bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
  };
  add(std::as_bytes(std::span(&length, 1)));
  add(std::as_bytes(std::span(&sum, 1)));
  add(body);
}

std::optional<int64_t> row_bytes(std::span<const std::byte> bytes) {
  if (std::ssize(bytes) < length_bytes) return {};
  // A damaged number may be any; what it asks for beyond the file's end is not there.
  int64_t all = 0;
  if (__builtin_add_overflow(number_at<int64_t>(bytes), frame_bytes, &all)) return INT64_MAX;
  return all;
}

std::optional<JournalRow> take_row(std::span<const std::byte>& bytes) {
  const auto all = row_bytes(bytes);
  if (!all || *all <= frame_bytes || *all > std::ssize(bytes)) return {};
  const auto body = bytes.subspan(frame_bytes, *all - frame_bytes);
  if (checksum(*all - frame_bytes, body) != number_at<uint32_t>(bytes.subspan(length_bytes)))
    return {};
  JournalRow row;
  Reader reader(body);
  reader(row.turn), reader(row.state);
  visit_row(reader, row.result);
  PECIA_CHECK(reader.done(), "the row of turn {} goes on after its end", row.turn);
  bytes = bytes.subspan(*all);
  return row;
}

}  // namespace pecia::io
