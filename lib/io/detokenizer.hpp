// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What each token of a model stands for, from the tokenizer.json of its Hugging Face folder.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pecia::io {

/// Gives for each token what the library `tokenizers` makes of it before it joins the answer's
/// text: `decode(ids, skip_special_tokens=True)`. AnswerText joins them.
///
/// It knows BPE models with the decoders of today's families: ByteLevel (GPT-2, Llama-3, Qwen, GLM)
/// and sequences of Replace, ByteFallback, Fuse, Strip and Metaspace (Llama-2, Mistral, InternLM2).
class Detokenizer {
 public:
  /// InputError naming the file and the reason: not there, not JSON, not as `tokenizers` writes it.
  /// Unsupported naming the model type or the decoder that is not known.
  explicit Detokenizer(const std::filesystem::path& tokenizer_json);

  enum class Kind : uint8_t {
    none,  ///< special, or not in the vocabulary: as if it were not there
    text,  ///< whole characters; with `joins_bytes`, any bytes
    byte   ///< one byte of a character, by byte fallback
  };
  struct Piece {
    Kind kind = Kind::none;
    std::string_view bytes;  ///< valid as long as the Detokenizer
  };
  Piece piece(int32_t token) const;
  /// The same where the token is the first of its answer that is not none: Metaspace leaves out its
  /// blank.
  Piece first_piece(int32_t token) const;

  /// All bytes together are UTF-8, as ByteLevel has it. Otherwise each run of byte tokens is.
  bool joins_bytes() const { return joins_bytes_; }
  /// At most so many of the answer's first characters are left out while they are `stripped`.
  int64_t strip_first() const { return strip_first_; }
  char stripped() const { return stripped_; }

 private:
  Piece piece_of(const std::vector<std::string>& bytes, int32_t token) const;

  std::vector<Kind> kinds_;
  std::vector<std::string> bytes_, first_bytes_;  ///< by token; the latter only where they differ
  bool joins_bytes_ = false;
  int64_t strip_first_ = 0;
  char stripped_ = ' ';
};

}  // namespace pecia::io
