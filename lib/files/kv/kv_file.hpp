// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file with keys and values of some tokens of one sequence, schema "pecia.kv/1". It holds what
/// one rank had of a request when its run had to stop. Files of states have this form, too
/// (KvStates).
///
///     /k, /v              [layers, heads, tokens, head_dim]   the cache's own bits: float32 for
///                         fp32, else unsigned integers of the element's size. There is no /v where
///                         values are the beginnings of keys
///     /k_scale, /v_scale  [layers, heads, tokens] float32     with fp8 alone
///     /positions          [ranges, 3] int64                   begin, count, stride: which
///                         positions the tokens have, in the order of the datasets
///     /checksum           [sides, layers, heads, blocks] uint64   of each block of kv_block_tokens
///                         tokens: keys, then values if there are any
///
/// All datasets are contiguous, so plain reads and writes move their numbers, and a full disk is an
/// ordinary error. The rest of the file uses the HDF5 format that carries its own checksums (1.8
/// and later).

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "lib/base/core/dtype.hpp"
#include "lib/files/disk/file.hpp"

namespace pecia::io {

inline constexpr int64_t kv_block_tokens = 1024;
inline constexpr mode_t kv_mode = 0600;  ///< of all files of a save

enum class KvSide { keys, values };

/// Positions begin, begin + stride, …; `count` of them.
struct KvPositions {
  int64_t begin = 0, count = 0, stride = 1;
  bool operator==(const KvPositions&) const = default;
};

struct KvFileShape {
  int64_t layers = 0, heads = 0, tokens = 0, head_dim = 0;
  DType dtype = DType::fp32;
  int64_t sides = 2;  ///< keys and values; 1: keys alone

  /// The first `sides` of keys and values.
  std::span<const KvSide> sides_stored() const;
  int64_t blocks() const { return (tokens + kv_block_tokens - 1) / kv_block_tokens; }
  int64_t tokens_of_block(int64_t block) const;
  int64_t vector_bytes() const { return head_dim * size_of(dtype); }
  bool has_scales() const { return dtype == DType::fp8; }
  /// Bytes of keys, values, scales and checksums together. Throws InvalidArgument beyond 2^62.
  int64_t payload_bytes() const;
};

/// Identifies one block of a file.
struct KvBlock {
  KvSide side = KvSide::keys;
  int64_t layer = 0, head = 0, block = 0;
};

/// Offsets of the datasets in the file.
struct KvOffsets {
  std::array<int64_t, 2> vectors{}, scales{};  ///< indexed by KvSide
  int64_t checksums = 0;
};

/// Writes PATH.part, which `finish` renames to PATH. Without `finish` no file remains. Only its owner
/// may read it, since prompts can be told from keys and values.
class KvFileWriter {
 public:
  /// `stamp` identifies the save that the file belongs to. `request_id` and `positions` are stored
  /// for readers. Throws SystemError with the bytes needed and free when the file system has no
  /// room.
  KvFileWriter(const std::filesystem::path& path, const KvFileShape& shape, int64_t stamp,
               const std::string& request_id, const std::vector<KvPositions>& positions);
  KvFileWriter(const KvFileWriter&) = delete;
  KvFileWriter& operator=(const KvFileWriter&) = delete;

  const KvFileShape& shape() const { return shape_; }

  /// Writes all vectors of a block, [tokens_of_block, head_dim], and the scales if the type has
  /// them.
  void write(const KvBlock& at, std::span<const std::byte> vectors, std::span<const float> scales);

  /// Call it after every block has been written. On return the file is durable, except for its name
  /// in the folder.
  void finish();

 private:
  /// Removes the file unless it was renamed.
  struct PartFile {
    std::filesystem::path path;
    ~PartFile() {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  };

  std::filesystem::path path_;
  PartFile part_;
  KvFileShape shape_;
  int64_t stamp_;
  KvOffsets offsets_;
  std::optional<File> file_;
  std::vector<uint64_t> checksums_;
  std::vector<bool> written_;
};

class KvFileReader {
 public:
  /// Throws InputError naming the file unless it was written with this shape and stamp.
  KvFileReader(const std::filesystem::path& path, const KvFileShape& shape, int64_t stamp);

  /// Reads a block as it was passed to `write`. Throws InputError when its checksum differs.
  void read(const KvBlock& at, std::span<std::byte> vectors, std::span<float> scales) const;

 private:
  KvFileShape shape_;
  int64_t stamp_;
  KvOffsets offsets_;
  File file_;
  std::vector<uint64_t> checksums_;
};

}  // namespace pecia::io
