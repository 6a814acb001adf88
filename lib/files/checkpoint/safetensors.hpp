// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tensors of a Hugging Face checkpoint folder, used in place in mapped memory.
///
/// Format: https://huggingface.co/docs/safetensors — 8 bytes little-endian header length, JSON
/// header {name: {dtype, shape, data_offsets}}, data. Every field is checked before it is used.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::io {

/// The files that hold the tensors of the checkpoint in `folder`. Throws InputError as Checkpoint
/// does.
std::vector<std::filesystem::path> checkpoint_files(const std::filesystem::path& folder);

/// model.safetensors, or the shards that model.safetensors.index.json names. Files are mapped
/// read-only and shared: the ranks of a host share the pages, and only touched pages are read.
class Checkpoint {
 public:
  /// If both exist, the single file is used, as in transformers. Throws InputError naming file and
  /// tensor: no checkpoint, truncated, header longer than the file or not JSON, offsets that are
  /// out of range, overlap, leave holes or contradict shape × dtype, a dtype that DType lacks, a
  /// tensor that appears twice, an index that names a missing shard or a tensor that its shard
  /// lacks. Tensors that the index omits can still be used.
  explicit Checkpoint(const std::filesystem::path& folder);
  /// Maps what `place(file)` names in place of each of checkpoint_files(folder): a copy of it.
  using Place = std::function<std::filesystem::path(const std::filesystem::path& file)>;
  Checkpoint(const std::filesystem::path& folder, const Place& place);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  std::vector<std::string> names() const;  ///< sorted
  bool contains(const std::string& name) const;

  /// Read-only view (fp32, bf16, fp16, or an integer type), valid while this object lives. It is
  /// aligned to the element size only; where the file does not align a tensor, a private copy is
  /// made. A scalar has shape [1]. Throws InputError if the tensor is absent or has more than four
  /// dimensions.
  TensorView tensor(const std::string& name) const;

  /// The file that holds the tensor, for messages.
  std::filesystem::path file_of(const std::string& name) const;

  int64_t total_bytes() const;  ///< sum over all tensors

  /// Lets go of the mapped pages, which are mapped again where they are touched again.
  void release_pages() const;

  /// sha256 (hex) of the index: name, dtype, shape, file and offsets of every tensor.
  std::string index_sha256() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// sha256 of a file, lower-case hex. Throws InputError if the file cannot be opened.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace pecia::io
