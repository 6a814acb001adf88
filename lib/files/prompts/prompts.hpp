// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Prompt shards, schema "pecia.prompts/1": one HDF5 file with token ids of requests and their
/// turns.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/api/sampling.hpp"
#include "lib/files/prompts/produce.hpp"

namespace pecia::io {

enum class Followup {
  chain,  ///< a turn sees the earlier turns and their answers
  fork    ///< every later turn sees only the first turn
};

/// One turn as the shard gives it. The job's value replaces an absent option. An option is absent
/// when the shard has no dataset for it, or when the turn's value means absence: −1 in
/// /max_new_tokens, /top_k, /ignore_eos and /logprobs, NaN in /temperature, /top_p, /min_p and the penalties,
/// the least int64 in /seed, "" in /stop and /shape.
///
/// What vectors and scores are of is in lists of all turns: /span_offsets int64 [turns+1] over /spans
/// int64 [Σ, 2], and /continuation_offsets int64 [turns+1] over /continuation_lengths int32 [Σ], which
/// cut /continuation_tokens int32 [ΣΣ].
struct PromptTurn {
  int64_t token_begin = 0, token_end = 0;  ///< range in /tokens
  std::optional<int32_t> max_new_tokens;
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k;
  std::optional<bool> ignore_eos;
  std::optional<int32_t> logprobs;  ///< top log-probabilities that the answer is to have
  std::optional<int64_t> seed;
  std::vector<kernels::LogitBias> logit_bias;    ///< by token, each once
  std::optional<std::vector<std::string>> stop;  ///< stop strings; the list may be empty
  /// What the answer must look like: JSON, {"schema": …}, {"regex": "…"} or {"choice": […]}.
  std::optional<std::string> shape = {};
  std::optional<Produce> produce = {};  ///< /produce, uint8
  std::vector<TokenSpan> spans = {};    ///< of the turn's tokens, a vector for each
  std::vector<std::vector<int32_t>> continuations = {};  ///< that are scored after the turn

  int64_t num_tokens() const { return token_end - token_begin; }
};

struct PromptRequest {
  std::string id;
  int64_t row = 0;                  ///< row in the shard
  std::optional<double> arrival_s;  ///< seconds after the start; all requests of a shard or none
  std::vector<PromptTurn> turns;
};

/// An open shard. The constructor reads and checks everything except the tokens, so that errors of
/// the file as a whole appear before any work starts. They are InputErrors naming file, dataset,
/// row and remedy: not HDF5, truncated, another schema, missing dataset, wrong type or rank,
/// offsets that are not monotone, reach beyond /tokens or leave tokens over, a request without
/// turns, duplicate or empty request id, an option out of range, stop strings that are not a JSON
/// array of texts. Errors of one request alone (an empty turn, a token outside the vocabulary) are
/// found when that request is run. Root attributes may be absent: the schema is then this one and
/// `followup` is chain. Not thread-safe: one thread uses it at a time.
class PromptShard {
 public:
  explicit PromptShard(const std::filesystem::path& path);
  ~PromptShard();
  PromptShard(PromptShard&&) noexcept;
  PromptShard& operator=(PromptShard&&) noexcept;

  const std::filesystem::path& path() const;
  const std::vector<PromptRequest>& requests() const;
  Followup followup() const;
  std::string tokenizer_sha256() const;  ///< empty when the shard does not say
  int64_t vocab_size() const;            ///< 0 when the shard does not say
  std::string created_by() const;

  /// Reads the turn's token ids from the file. A stored value that does not fit int32 becomes the
  /// nearest int32, which no vocabulary contains.
  std::vector<int32_t> tokens(const PromptTurn& turn) const;

 private:
  friend class PromptScan;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads the turns of a shard in about the order of the file. Many short turns take one read of the
/// file together; PromptShard::tokens reads the file for each.
class PromptScan {
 public:
  /// `shard` outlives this object.
  explicit PromptScan(const PromptShard& shard) : shard_(shard) {}

  /// The turn's token ids, as PromptShard::tokens gives them; valid until the next call.
  std::span<const int32_t> tokens(const PromptTurn& turn);

 private:
  const PromptShard& shard_;
  int64_t begin_ = 0;  ///< of the tokens read, in /tokens
  std::vector<int32_t> read_;
};

/// A request of one turn.
struct PromptText {
  std::string id;
  std::vector<int32_t> tokens;
};

/// Writes a shard of such requests, at least one, and replaces an existing file. Throws
/// SystemError.
void write_prompts(const std::filesystem::path& path, const std::vector<PromptText>& texts);

}  // namespace pecia::io
