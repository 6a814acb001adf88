// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes safetensors files for tests, whole or broken.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/core/dtype.hpp"

namespace pecia::test {

struct NamedTensor {
  std::string name;
  std::string dtype;  ///< as in the file, e.g. "BF16"
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

/// A tensor of floats, rounded to fp32, bf16 or fp16.
NamedTensor float_tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                         std::span<const float> values);

/// The tensors in the order given. The header is padded with spaces so that the data begin at
/// `misalignment` modulo 8.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       int misalignment = 0);

/// Header length, header text and data as given; the length is the text's unless told otherwise.
void write_raw_safetensors(const std::filesystem::path& path, const std::string& header,
                           size_t data_bytes, std::optional<uint64_t> header_bytes = std::nullopt);

/// FOLDER/model.safetensors.index.json.
void write_safetensors_index(const std::filesystem::path& folder,
                             const std::map<std::string, std::string>& shard_of_tensor);

}  // namespace pecia::test
