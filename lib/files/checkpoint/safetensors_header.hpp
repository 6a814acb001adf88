// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads the JSON header of one safetensors file and checks it against the file's size.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lib/base/core/dtype.hpp"

namespace pecia::io {

struct StoredTensor {
  std::string name;
  DType dtype = DType::fp32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  ///< byte offsets from the beginning of the file
};

/// The tensors of a file, in the order of their data. Throws InputError naming file and tensor.
std::vector<StoredTensor> read_safetensors_header(const std::filesystem::path& path,
                                                  std::span<const std::byte> file);

}  // namespace pecia::io
