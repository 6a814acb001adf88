#pragma once
/// The JSON header of one safetensors file, checked against the file's size.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
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

/// JSON without duplicate keys; InputError naming the file and, for a duplicate, the key.
nlohmann::json parse_strict_json(const std::filesystem::path& path, std::string_view text);

}  // namespace pecia::io
