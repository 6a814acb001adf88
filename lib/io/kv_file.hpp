// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values of some tokens of one sequence in a file, schema "pecia.kv/1": what one rank
/// held of a request when its run had to stop.
///
///     /k, /v              [layers, heads, tokens, head_dim]   the cache's own bits: float32 for
///                         fp32, else unsigned integers of the element's size
///     /k_scale, /v_scale  [layers, heads, tokens] float32     with fp8 alone
///     /positions          [ranges, 3] int64                   begin, count, stride: which
///                         positions the tokens have, in the order of the datasets
///     /checksum           [2, layers, heads, blocks] uint64   of each block of kv_block_tokens
///                         tokens: keys, then values
///
/// All datasets are contiguous, so that their numbers are moved by plain reads and writes and a
/// full disk is an ordinary error. Everything else in the file is of the HDF5 format that carries
/// checksums itself (1.8 and later).

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "lib/core/dtype.hpp"
#include "lib/io/file.hpp"

namespace pecia::io {

inline constexpr int64_t kv_block_tokens = 1024;

enum class KvSide { keys, values };

/// Positions begin, begin + stride, … (count of them).
struct KvPositions {
  int64_t begin = 0, count = 0, stride = 1;
  bool operator==(const KvPositions&) const = default;
};

struct KvFileShape {
  int64_t layers = 0, heads = 0, tokens = 0, head_dim = 0;
  DType dtype = DType::fp32;

  int64_t blocks() const { return (tokens + kv_block_tokens - 1) / kv_block_tokens; }
  int64_t tokens_of_block(int64_t block) const;
  int64_t vector_bytes() const { return head_dim * size_of(dtype); }
  bool has_scales() const { return dtype == DType::fp8; }
  /// Bytes of keys, values, scales and checksums together. InvalidArgument beyond 2^62.
  int64_t payload_bytes() const;
};

/// Where a block of a file is.
struct KvBlock {
  KvSide side = KvSide::keys;
  int64_t layer = 0, head = 0, block = 0;
};

/// Offsets of the datasets in the file.
struct KvOffsets {
  std::array<int64_t, 2> vectors{}, scales{};  ///< by KvSide
  int64_t checksums = 0;
};

/// Writes PATH.part; `finish` makes it PATH. Without it nothing is left.
class KvFileWriter {
 public:
  /// `stamp` says which save the file belongs to. `request_id` and `positions` are for readers.
  /// SystemError with the bytes needed and free where the file system has no room.
  KvFileWriter(const std::filesystem::path& path, const KvFileShape& shape, int64_t stamp,
               const std::string& request_id, const std::vector<KvPositions>& positions);
  KvFileWriter(const KvFileWriter&) = delete;
  KvFileWriter& operator=(const KvFileWriter&) = delete;

  const KvFileShape& shape() const { return shape_; }

  /// All vectors of a block, [tokens_of_block, head_dim], and the scales where the type has them.
  void write(const KvBlock& at, std::span<const std::byte> vectors, std::span<const float> scales);

  /// After every block has been written: durable on return, but for the folder's own entry.
  void finish();

 private:
  /// Removes the file unless it was renamed away.
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
  /// InputError naming the file where it is not the one that was written with this shape and stamp.
  KvFileReader(const std::filesystem::path& path, const KvFileShape& shape, int64_t stamp);

  /// The block as `write` was given it. InputError where its checksum differs.
  void read(const KvBlock& at, std::span<std::byte> vectors, std::span<float> scales) const;

 private:
  KvFileShape shape_;
  int64_t stamp_;
  KvOffsets offsets_;
  File file_;
  std::vector<uint64_t> checksums_;
};

}  // namespace pecia::io
