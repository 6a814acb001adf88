// SPDX-License-Identifier: Apache-2.0
#include "lib/files/checkpoint/safetensors_header.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/disk/strict_json.hpp"

namespace pecia::io {
namespace {

using nlohmann::json;

constexpr uint64_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100'000'000;  // same limit as the reference implementation
constexpr const char* remedy = "download or save the checkpoint again";

DType dtype_named(const std::string& where, const std::string& name) {
  if (name == "F32") return DType::fp32;
  if (name == "BF16") return DType::bf16;
  if (name == "F16") return DType::fp16;
  if (name == "I32") return DType::int32;
  if (name == "I64") return DType::int64;
  if (name == "U8") return DType::uint8;
  if (name == "I8") return DType::int8;
  if (name == "F8_E4M3") return DType::fp8;
  fail<Unsupported>(
      "{} has dtype {}; F32, BF16, F16, F8_E4M3, I8, I32, I64 and U8 can be read. Save the "
      "checkpoint in one of the first three",
      where, name);
}

int64_t non_negative(const std::string& where, const json& value, const char* what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX)
    fail<InputError>("{}: {} {:.100} is no size: {}", where, what, json_text(value), remedy);
  return value.get<int64_t>();
}

const json& member(const std::string& where, const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) fail<InputError>("{} has no '{}': {}", where, key, remedy);
  return *found;
}

StoredTensor parse_tensor(const std::filesystem::path& path, const std::string& name,
                          const json& entry, int64_t data_begin, int64_t data_bytes) {
  const std::string where = fmt::format("{}: tensor '{}'", path.string(), name);
  if (!entry.is_object()) fail<InputError>("{} is no JSON object: {}", where, remedy);
  const json& dtype = member(where, entry, "dtype");
  const json& shape = member(where, entry, "shape");
  const json& offsets = member(where, entry, "data_offsets");
  if (!dtype.is_string()) fail<InputError>("{}: dtype is no string: {}", where, remedy);
  if (!shape.is_array()) fail<InputError>("{}: shape is no array: {}", where, remedy);
  if (!offsets.is_array() || offsets.size() != 2)
    fail<InputError>("{}: data_offsets is no pair: {}", where, remedy);

  StoredTensor tensor;
  tensor.name = name;
  tensor.dtype = dtype_named(where, dtype.get<std::string>());
  int64_t bytes = size_of(tensor.dtype);
  for (const json& extent : shape) {
    tensor.shape.push_back(non_negative(where, extent, "extent"));
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes))
      fail<InputError>("{}: shape {:.100} is more than 2^63 bytes: {}", where, json_text(shape),
                       remedy);
  }
  const int64_t begin = non_negative(where, offsets[0], "offset");
  const int64_t end = non_negative(where, offsets[1], "offset");
  if (begin > end || end > data_bytes)
    fail<InputError>(
        "{}: data_offsets [{}, {}] are not within the file's {} data bytes, the file "
        "may have been cut off: {}",
        where, begin, end, data_bytes, remedy);
  if (end - begin != bytes)
    fail<InputError>("{}: data_offsets give {} bytes, but shape {:.100} of {} needs {}: {}", where,
                     end - begin, json_text(shape), dtype.get<std::string>(), bytes, remedy);
  tensor.begin = data_begin + begin;
  tensor.end = data_begin + end;
  return tensor;
}

/// Checks that the tensors' data fill the file without overlap or hole.
void check_tiling(const std::filesystem::path& path, const std::vector<StoredTensor>& tensors,
                  int64_t data_begin, int64_t file_bytes) {
  int64_t reached = data_begin;
  const StoredTensor* before = nullptr;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin < reached)
      fail<InputError>("{}: tensor '{}' overlaps '{}' by {} bytes: {}", path.string(), tensor.name,
                       before->name, reached - tensor.begin, remedy);
    if (tensor.begin > reached)
      fail<InputError>("{}: {} bytes before tensor '{}' belong to no tensor: {}", path.string(),
                       tensor.begin - reached, tensor.name, remedy);
    reached = tensor.end;
    before = &tensor;
  }
  if (reached != file_bytes)
    fail<InputError>("{}: the last {} bytes{} belong to no tensor: {}", path.string(),
                     file_bytes - reached,
                     before ? fmt::format(", after tensor '{}',", before->name) : "", remedy);
}

}  // namespace

std::vector<StoredTensor> read_safetensors_header(const std::filesystem::path& path,
                                                  std::span<const std::byte> file) {
  static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
  if (file.size() < length_bytes)
    fail<InputError>("{} has {} bytes, too few for a safetensors file: {}", path.string(),
                     file.size(), remedy);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), length_bytes);
  if (header_bytes > max_header_bytes)
    fail<InputError>(
        "{} claims a header of {} bytes; {} are allowed. It may be no safetensors "
        "file: {}",
        path.string(), header_bytes, max_header_bytes, remedy);
  if (header_bytes > file.size() - length_bytes)
    fail<InputError>("{} claims a header of {} bytes but has only {}; it may have been cut off: {}",
                     path.string(), header_bytes, file.size(), remedy);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + length_bytes,
                              header_bytes);
  const json header = parse_strict_json(path, text);
  if (!header.is_object())
    fail<InputError>("{}: its header is no JSON object: {}", path.string(), remedy);

  const auto data_begin = static_cast<int64_t>(length_bytes + header_bytes);
  const auto file_bytes = static_cast<int64_t>(file.size());
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__")
      tensors.push_back(parse_tensor(path, name, entry, data_begin, file_bytes - data_begin));
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_tiling(path, tensors, data_begin, file_bytes);
  return tensors;
}

}  // namespace pecia::io
