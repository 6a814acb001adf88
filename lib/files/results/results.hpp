// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The results file, schema "pecia.results/1". It is made in full before the first token and then
/// only written in place, so it is readable at any moment and after a kill.
///
/// Rows are written by plain pwrite at the datasets' offsets and made durable with fdatasync. Only
/// then are they marked in /state. So several processes of a host may write different turns of one
/// file. A run with several replicas has one that does, and journals (journal_gatherer.hpp).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/prompts/produce.hpp"

namespace pecia::io {

enum class TurnState : uint8_t { open = 0, partial = 1, done = 2, failed = 3 };
enum class FinishReason : uint8_t { none = 0, stop = 1, length = 2, failed = 3 };

/// One turn of the job; turns are in input order.
struct ResultTurn {
  std::string request_id;
  int32_t shard = 0;  ///< index into the job's list of input files
  int64_t request = 0;
  int32_t turn = 0;
  int64_t slots = 0;  ///< max_new_tokens of the turn
  /// Prompt tokens of this turn alone. They are read back from /prompt_slot_offsets. Without prompt
  /// log-probabilities they are read from /prompt_tokens, which a written row replaces.
  int64_t prompt_tokens = 0;
  int32_t settings = 0;      ///< index into ResultsLayout::settings
  int32_t vectors = 0;       ///< that the turn gives
  int32_t scores = 0;        ///< that the turn gives
  int64_t score_tokens = 0;  ///< tokens whose log-probabilities these weigh
};

struct ResultsLayout {
  std::vector<ResultTurn> turns;
  std::vector<std::string> inputs;  ///< the job's input files, in the order of ResultTurn::shard
  int64_t vocab = 0;
  int logprobs = 0;         ///< K of /top_tokens; −1: whole vocabulary; 0: none
  int prompt_logprobs = 0;  ///< K of the prompt's top tokens; −1: whole vocabulary; 0: none
  std::string identity;     ///< JSON object: model, sampling, input, version; same in every re-run
  std::string measured;     ///< JSON object: facts that the run's automatic choices depend on
  /// JSON objects with the settings that may differ between turns, indexed by ResultTurn::settings.
  std::vector<std::string> settings;
  int64_t vector_width = 0;  ///< numbers of a vector; required where a turn gives one
  VectorType vector_type = VectorType::fp32;
};

/// The result of a turn. The prompt's vectors may be shorter than the turn's slots (after a cut of
/// the prompt or a failure). The missing values read back as NaN and −1; in prompt_top_logprobs
/// they are undefined.
struct TurnResult {
  std::vector<int32_t> tokens;
  std::vector<float> token_logprobs;       ///< [tokens]
  std::vector<int32_t> top_tokens;         ///< [tokens, K]
  std::vector<float> top_logprobs;         ///< [tokens, K] or [tokens, vocab]
  std::vector<float> prompt_logprobs;      ///< [prompt tokens] if requested
  std::vector<int32_t> prompt_top_tokens;  ///< [prompt tokens, K]
  std::vector<float> prompt_top_logprobs;  ///< [prompt tokens, K] or [prompt tokens, vocab]
  std::vector<float> vectors;              ///< [vectors, width]; fp16 rounds them when written
  std::vector<double> scores;              ///< [scores]
  std::vector<float> score_logprobs;       ///< [score tokens]
  int32_t prompt_tokens = 0, cached_tokens = 0;
  int32_t truncated_tokens = 0;  ///< prompt tokens left out by limits.over_length
  FinishReason finish_reason = FinishReason::none;
  /// If a stop string ended the answer: the number of bytes of the answer's text before that
  /// string, in UTF-8 without special tokens. Otherwise −1, also in files of versions without stop
  /// strings.
  int64_t text_bytes = -1;
  std::string error;  ///< cut to 256 bytes, between two characters
  float queue_s = 0, ttft_s = 0, decode_s = 0;
  float prefill_compute_s = 0, prefill_comm_s = 0, decode_compute_s = 0, decode_comm_s = 0;
  std::string mode;  ///< at most 64 bytes
  int32_t replica = 0;
  int32_t yields = 0;          ///< how often its keys left the cache so that others could grow
  int32_t draft_accepted = 0;  ///< tokens of the answer that had been drafted
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
  /// almost no space until rows are written. Throws InputError if `path` exists or the size exceeds
  /// 2^63 bytes, and SystemError (with the bytes needed and free) if the file system cannot hold a
  /// file of that size.
  static void create(const std::filesystem::path& path, const ResultsLayout& layout);

  /// Opens an existing file. Throws InputError unless it is a complete results file of this
  /// program.
  explicit ResultsFile(const std::filesystem::path& path, Access access = Access::write);
  ~ResultsFile();
  ResultsFile(ResultsFile&&) noexcept;
  ResultsFile& operator=(ResultsFile&&) noexcept;

  /// The layout that the file was made for. `turns`, the two K, vocab and identity are read back.
  const ResultsLayout& layout() const;
  int64_t num_turns() const;
  TurnState state(int64_t turn) const;
  /// The states of all turns as they are now, by one read of the file.
  std::vector<TurnState> states() const;
  /// Number of output tokens of a finished, failed or partial turn.
  int64_t output_tokens(int64_t turn) const;

  /// The output tokens of such a turn. Throws InputError naming file, row and request where one is
  /// outside the vocabulary: the file is damaged.
  std::vector<int32_t> tokens(int64_t turn) const;

  /// Reads the row of a finished, failed or partial turn. Throws as `tokens` does.
  TurnResult read(int64_t turn) const;

  /// Whether the path still names the file.
  bool is_in_place() const;
  /// Throws SystemError where it does not: it says where the rows are (displaced.hpp).
  void require_in_place() const;

  /// Throws InvalidArgument unless write_all would take these rows.
  void check(std::span<const TurnUpdate> updates) const;

  /// Writes the row, then its state (which must not be `open`); durable on return. The turn must be
  /// open or partial. A partial turn only grows: its tokens begin with the tokens in the file,
  /// whose slots are not written again. Throws InvalidArgument when lengths contradict the layout.
  /// Throws SystemError (errno's text, the path, the rows) when the disk is full; then the states
  /// in the file are unchanged. If the very last sync fails, the rows are complete and their states
  /// may be old or new. When all is written, throws as `require_in_place` does.
  void write(int64_t turn, const TurnResult& result, TurnState state);

  /// Writes several turns, each at most once, at the cost of one: one sync for all rows, then one
  /// for all states.
  void write_all(std::span<const TurnUpdate> updates);

  /// Sets the state to open, whatever it was (for --retry-failed).
  void reopen(int64_t turn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws the error again, with the rows that could not be written and what to do.
[[noreturn]] void fail_unrecorded(const Error& error, const ResultsLayout& layout,
                                  std::span<const TurnUpdate> updates);

}  // namespace pecia::io
