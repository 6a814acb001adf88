// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tensors of a Hugging Face checkpoint folder, memory-mapped and used in place.
///
/// Format: https://huggingface.co/docs/safetensors — 8 bytes little-endian header length, JSON
/// header {name: {dtype, shape, data_offsets}}, data. Every field is checked before it is used.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/core/tensor_view.hpp"

namespace pecia::io {

/// model.safetensors, or the shards that model.safetensors.index.json names. Mapped read-only and
/// shared: ranks of a host share the pages, and only what is touched is read.
class Checkpoint {
 public:
  /// The single file wins where both are there, as in transformers. InputError naming file and
  /// tensor: nothing there, truncated, header longer than the file or not JSON, offsets out of
  /// range, overlapping, with holes or not matching shape × dtype, a dtype that DType has not, a
  /// tensor twice, an index naming a missing shard or a tensor that its shard does not hold.
  /// Tensors that the index leaves out are there all the same.
  explicit Checkpoint(const std::filesystem::path& folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  std::vector<std::string> names() const;  ///< sorted
  bool contains(const std::string& name) const;

  /// Read-only view (fp32, bf16, fp16, or an integer type); valid while this object lives. Aligned
  /// to the element size, no more: where the file does not do that, a private copy is made. A
  /// scalar has shape [1]. InputError if absent or of more than four dimensions.
  TensorView tensor(const std::string& name) const;

  /// File that holds the tensor, for messages.
  std::filesystem::path file_of(const std::string& name) const;

  int64_t total_bytes() const;  ///< of all tensors

  /// sha256 (hex) over the index: every tensor's name, dtype, shape, file and offsets.
  std::string index_sha256() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// sha256 of a file, lower-case hex. InputError if it cannot be opened.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace pecia::io
