// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Maps a model's tokens to text, using the tokenizer.json of its Hugging Face folder.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pecia::io {

/// Gives for each token the piece that the library `tokenizers` produces before it joins the
/// answer's text: `decode(ids, skip_special_tokens=True)`. AnswerText joins the pieces.
///
/// Supported are BPE models with the decoders of today's families: ByteLevel (GPT-2, Llama-3, Qwen,
/// GLM) and sequences of Replace, ByteFallback, Fuse, Strip and Metaspace (Llama-2, Mistral,
/// InternLM2).
class Detokenizer {
 public:
  /// Throws InputError naming the file and the reason: absent, not JSON, not in the format of
  /// `tokenizers`, or texts of tokens that are longer than any model's: 4 KiB each, 64 MiB in all,
  /// also after the decoders. Throws Unsupported naming an unknown model type or decoder.
  explicit Detokenizer(const std::filesystem::path& tokenizer_json);

  enum class Kind : uint8_t {
    none,  ///< special or not in the vocabulary; adds nothing to the text
    text,  ///< complete characters; with `joins_bytes`, any bytes
    byte   ///< one byte of a character, from byte fallback
  };
  struct Piece {
    Kind kind = Kind::none;
    std::string_view bytes;  ///< valid while the Detokenizer lives
  };
  Piece piece(int32_t token) const;
  /// The piece of a token that is the first in its answer whose kind is not none: Metaspace omits
  /// its leading blank.
  Piece first_piece(int32_t token) const;

  /// Whether all bytes of an answer together are UTF-8, as with ByteLevel. Otherwise each run of
  /// byte tokens is decoded by itself.
  bool joins_bytes() const { return joins_bytes_; }
  /// The most characters to leave out at the beginning of an answer, as long as they equal
  /// `stripped`.
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
