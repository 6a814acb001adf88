// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Prompt shards, schema "pecia.prompts/1": token ids of requests and their turns in one HDF5 file.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pecia::io {

enum class Followup {
  chain,  ///< a turn sees the earlier turns and their answers
  fork    ///< every later turn sees only the first turn
};

/// One turn as the shard gives it; absent options are the job's. An option is absent where the
/// shard has no dataset of it, and in a turn whose value stands for that: −1 in /max_new_tokens,
/// NaN in /temperature and /top_p, the least int64 in /seed, "" in /stop.
struct PromptTurn {
  int64_t token_begin = 0, token_end = 0;  ///< into /tokens
  std::optional<int32_t> max_new_tokens;
  std::optional<float> temperature, top_p;
  std::optional<int64_t> seed;
  std::optional<std::vector<std::string>> stop;  ///< stop strings; may be none

  int64_t num_tokens() const { return token_end - token_begin; }
};

struct PromptRequest {
  std::string id;
  int64_t row = 0;                  ///< in the shard
  std::optional<double> arrival_s;  ///< seconds after the start; in all requests of a shard or none
  std::vector<PromptTurn> turns;
};

/// An open shard. The constructor reads and checks everything but the tokens, so what is wrong with
/// the file as a whole is an InputError naming file, dataset, row and remedy before any work
/// starts: not HDF5, truncated, another schema, missing dataset, wrong type or rank, offsets not
/// monotone or beyond /tokens or leaving some of it over, a request without turns, duplicate or
/// empty request id, an option outside its range, stop strings that are no JSON array of texts.
/// What concerns one request alone (an empty turn, a token outside the vocabulary) is left to
/// whoever runs the request. Root attributes may be absent: the schema is then this one, `followup`
/// is chain. One thread at a time.
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

  /// The turn's token ids, read from the file. What is stored wider than int32 and does not fit
  /// becomes the nearest int32, which no vocabulary holds.
  std::vector<int32_t> tokens(const PromptTurn& turn) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pecia::io
