// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The results file, schema "pecia.results/1": made whole before the first token, then only written
/// in place, so it is readable at any moment and after a kill.
///
/// Rows are written by plain pwrite at the datasets' offsets, made durable with fdatasync, and only
/// then marked in /state, so several processes of a host may write different turns of one file.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/io/file.hpp"

namespace pecia::io {

enum class TurnState : uint8_t { open = 0, partial = 1, done = 2, failed = 3 };
enum class FinishReason : uint8_t { none = 0, stop = 1, length = 2, failed = 3 };

/// A turn of the job, in input order.
struct ResultTurn {
  std::string request_id;
  int32_t shard = 0;  ///< index into the job's list of input files
  int64_t request = 0;
  int32_t turn = 0;
  int64_t slots = 0;  ///< its max_new_tokens
  /// Of this turn alone. Read back from /prompt_slot_offsets, or else, without prompt
  /// log-probabilities, from /prompt_tokens, which a written row replaces.
  int64_t prompt_tokens = 0;
  int32_t settings = 0;  ///< index into ResultsLayout::settings
};

struct ResultsLayout {
  std::vector<ResultTurn> turns;
  std::vector<std::string> inputs;  ///< the job's input files, as ResultTurn::shard counts them
  int64_t vocab = 0;
  int logprobs = 0;         ///< K of /top_tokens; −1: whole vocabulary; 0: none
  int prompt_logprobs = 0;  ///< likewise; 0: none
  std::string
      identity;  ///< JSON object: model, sampling, input, version; a re-run must have the same
  std::string measured;  ///< JSON object: what the run's automatic choices depend on
  /// JSON objects: what may differ between the turns of a run; ResultTurn::settings says which.
  std::vector<std::string> settings;
};

/// What a turn gave. The prompt's vectors may be shorter than the turn's slots (a prompt cut to
/// fit, a turn that failed): the rest reads back as NaN and −1, that of prompt_top_logprobs as
/// whatever is there.
struct TurnResult {
  std::vector<int32_t> tokens;
  std::vector<float> token_logprobs;       ///< [tokens]
  std::vector<int32_t> top_tokens;         ///< [tokens, K]
  std::vector<float> top_logprobs;         ///< [tokens, K] or [tokens, vocab]
  std::vector<float> prompt_logprobs;      ///< [prompt tokens] when asked for
  std::vector<int32_t> prompt_top_tokens;  ///< [prompt tokens, K]
  std::vector<float> prompt_top_logprobs;  ///< [prompt tokens, K] or [prompt tokens, vocab]
  int32_t prompt_tokens = 0, cached_tokens = 0;
  int32_t truncated_tokens = 0;  ///< of the prompt, left out by limits.over_length
  FinishReason finish_reason = FinishReason::none;
  /// Where a stop string ended the answer: bytes of its text, as UTF-8 and without special tokens,
  /// before that string. Otherwise −1, as in files of versions without stop strings.
  int64_t text_bytes = -1;
  std::string error;  ///< cut at 256 bytes, at a character's boundary
  float queue_s = 0, ttft_s = 0, decode_s = 0;
  float prefill_compute_s = 0, prefill_comm_s = 0, decode_compute_s = 0, decode_comm_s = 0;
  std::string mode;  ///< at most 64 bytes
  int32_t replica = 0;
};

/// One row to write.
struct TurnUpdate {
  int64_t turn = 0;
  const TurnResult& result;
  TurnState state = TurnState::done;
};

class ResultsFile {
 public:
  /// Makes the file under a temporary name, syncs it and renames it. The file is sparse: it takes
  /// next to no room until rows are written. InputError if `path` exists or the size is beyond 2^63
  /// bytes; SystemError (with the bytes needed and free) if the file system cannot hold a file of
  /// that size.
  static void create(const std::filesystem::path& path, const ResultsLayout& layout);

  /// Opens an existing file. InputError when it is no whole results file of this program.
  explicit ResultsFile(const std::filesystem::path& path, Access access = Access::write);
  ~ResultsFile();
  ResultsFile(ResultsFile&&) noexcept;
  ResultsFile& operator=(ResultsFile&&) noexcept;

  /// What the file was made for. `turns`, K's, vocab and identity are read back.
  const ResultsLayout& layout() const;
  int64_t num_turns() const;
  TurnState state(int64_t turn) const;
  /// Of a finished, failed or partial turn.
  int64_t output_tokens(int64_t turn) const;

  /// The row of a finished, failed or partial turn as it stands in the file.
  TurnResult read(int64_t turn) const;

  /// Writes the row, then its state (not `open`); durable on return. The turn must be open or
  /// partial. A partial turn only grows: its tokens begin with those in the file, whose slots are
  /// not written again. InvalidArgument when lengths contradict the layout. SystemError (errno's
  /// text, the path, the rows) when the disk is full; then the states in the file are as before.
  /// Should the very last sync fail, the rows are whole and their states may be either.
  void write(int64_t turn, const TurnResult& result, TurnState state);

  /// The same for several turns, each at most once, at the price of one: one sync for all rows,
  /// then one for all states.
  void write_all(std::span<const TurnUpdate> updates);

  /// Back to open (for --retry-failed), whatever the state.
  void reopen(int64_t turn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pecia::io
