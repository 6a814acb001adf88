#pragma once
/// The results file, schema "pecia.results/1": made whole before the first token, then only written in
/// place, so it is readable at any moment and after a kill.
///
/// Rows are written by plain pwrite at the datasets' offsets, made durable with fdatasync, and only then
/// marked in /state, so several processes may write different turns of one file.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pecia::io {

enum class TurnState : uint8_t { open = 0, partial = 1, done = 2, failed = 3 };
enum class FinishReason : uint8_t { none = 0, stop = 1, length = 2, failed = 3 };

/// A turn of the job, in input order.
struct ResultTurn {
  std::string request_id;
  int32_t shard = 0;  ///< index into the job's list of input files
  int64_t request = 0;
  int32_t turn = 0;
  int64_t slots = 0;          ///< its max_new_tokens
  int64_t prompt_tokens = 0;  ///< of this turn alone
};

struct ResultsLayout {
  std::vector<ResultTurn> turns;
  int64_t vocab = 0;
  int logprobs = 0;         ///< K of /top_tokens; −1: whole vocabulary; 0: none
  int prompt_logprobs = 0;  ///< likewise; 0: none
  std::string identity;     ///< JSON object: model, sampling, input, version; a re-run must have the same
};

/// What a turn gave. Vectors may be longer on disk than here only for a partial turn.
struct TurnResult {
  std::vector<int32_t> tokens;
  std::vector<float> token_logprobs;
  std::vector<int32_t> top_tokens;    ///< [tokens, K]
  std::vector<float> top_logprobs;    ///< [tokens, K] or [tokens, vocab]
  std::vector<float> prompt_logprobs;         ///< [prompt_tokens] when asked for
  std::vector<int32_t> prompt_top_tokens;     ///< [prompt_tokens, K]
  std::vector<float> prompt_top_logprobs;
  int32_t prompt_tokens = 0, cached_tokens = 0;
  FinishReason finish_reason = FinishReason::none;
  std::string error;  ///< cut at 256 bytes, at a character's boundary
  float queue_s = 0, ttft_s = 0, decode_s = 0;
  float prefill_compute_s = 0, prefill_comm_s = 0, decode_compute_s = 0, decode_comm_s = 0;
  std::string mode;
  int32_t replica = 0;
};

class ResultsFile {
 public:
  /// Makes the file under a temporary name, syncs it and renames it. Throws InputError if `path` exists
  /// and SystemError (with the bytes needed and free) when the disk has no room for it.
  static void create(const std::filesystem::path& path, const ResultsLayout& layout);

  /// Opens an existing file for writing rows. InputError when it is no results file.
  explicit ResultsFile(const std::filesystem::path& path);
  ~ResultsFile();
  ResultsFile(ResultsFile&&) noexcept;
  ResultsFile& operator=(ResultsFile&&) noexcept;

  /// What the file was made for. `turns`, K's, vocab and identity are read back.
  const ResultsLayout& layout() const;
  int64_t num_turns() const;
  TurnState state(int64_t turn) const;

  /// The row of a finished, failed or partial turn as it stands in the file.
  TurnResult read(int64_t turn) const;

  /// Writes the row, then its state; durable on return unless `durable` is deferred to sync().
  /// SystemError (errno's text, the path, the row) when the disk is full; then /state is untouched.
  void write(int64_t turn, const TurnResult& result, TurnState state);

  /// Back to open (for --retry-failed).
  void reopen(int64_t turn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pecia::io
