// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The save of one request's keys and values: files of kv_file.hpp in a folder of its own, and
/// `save.json`, which says what they hold. It is written last and replaced whole: without it, and
/// beside the files that it does not name, there is no save.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/kv_file.hpp"

namespace pecia::io {

/// One file: some KV heads of some positions.
struct KvPart {
  std::string file;  ///< its name in the folder
  int64_t stamp = 0;
  int64_t head_begin = 0, head_end = 0;
  std::vector<KvPositions> positions;  ///< in the order of the file's tokens

  int64_t tokens() const;
  template <typename A>
  void visit(A& archive) {
    archive(file), archive(stamp), archive(head_begin), archive(head_end), archive(positions);
  }
};

struct KvSave {
  std::string identity;  ///< of what keys and values depend on beside the tokens
  std::string request_id;
  int64_t row = 0;            ///< of the request's first turn in the results
  int64_t tokens = 0;         ///< positions [0, tokens) are held
  std::string tokens_sha256;  ///< of their token ids, int32 one after another
  int64_t layers = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::fp32;
  int64_t bytes = 0;  ///< of all files
  std::vector<KvPart> parts;

  KvFileShape shape_of(const KvPart& part) const {
    return {layers, part.head_end - part.head_begin, part.tokens(), head_dim, dtype};
  }
};

inline constexpr const char* kv_save_file = "save.json";

/// Makes the files in `folder` a save, in place of an earlier one; durable on return. SystemError
/// where the disk is full.
void write_kv_save(const std::filesystem::path& folder, const KvSave& save);

/// Absent: `folder` holds no save. InputError where it is damaged or of another schema.
std::optional<KvSave> read_kv_save(const std::filesystem::path& folder);

/// Removes the save, its description first, with all its folder. What cannot be removed is left.
void remove_kv_save(const std::filesystem::path& folder) noexcept;

/// Removes what is in the folder and the save does not name, as a kill leaves it.
void remove_unnamed_files(const std::filesystem::path& folder, const KvSave& save) noexcept;

}  // namespace pecia::io
