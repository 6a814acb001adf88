// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The JSON header of one safetensors file, checked against the file's size.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lib/core/dtype.hpp"

namespace pecia::io {

struct StoredTensor {
  std::string name;
  DType dtype = DType::fp32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  ///< bytes, counted from the file's first
};

/// The tensors of a whole file, in the order of their data. InputError naming file and tensor.
std::vector<StoredTensor> read_safetensors_header(const std::filesystem::path& path,
                                                  std::span<const std::byte> file);

}  // namespace pecia::io
