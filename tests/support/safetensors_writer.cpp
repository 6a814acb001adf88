// SPDX-License-Identifier: Apache-2.0
#include "tests/support/safetensors_writer.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/compare.hpp"

namespace pecia::test {
namespace {

void write_file(const std::filesystem::path& path, uint64_t header_bytes, const std::string& header,
                std::span<const std::byte> data) {
  std::ofstream out(path, std::ios::binary);
  out.exceptions(std::ios::failbit | std::ios::badbit);
  out.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  out << header;
  out.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  out.close();
}

}  // namespace

NamedTensor float_tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                         std::span<const float> values) {
  const char* stored = dtype == DType::fp32 ? "F32" : dtype == DType::bf16 ? "BF16" : "F16";
  return {name, stored, shape, stored_as(dtype, values)};
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       int misalignment) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::vector<std::byte> data;
  for (const NamedTensor& tensor : tensors) {
    const size_t begin = data.size();
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  while (text.size() % 8 != static_cast<size_t>(misalignment)) text += ' ';
  write_file(path, text.size(), text, data);
}

void write_raw_safetensors(const std::filesystem::path& path, const std::string& header,
                           size_t data_bytes, std::optional<uint64_t> header_bytes) {
  write_file(path, header_bytes.value_or(header.size()), header,
             std::vector<std::byte>(data_bytes));
}

void write_safetensors_index(const std::filesystem::path& folder,
                             const std::map<std::string, std::string>& shard_of_tensor) {
  const nlohmann::json index = {{"metadata", nlohmann::json::object()},
                                {"weight_map", shard_of_tensor}};
  std::ofstream(folder / "model.safetensors.index.json") << index.dump(2);
}

}  // namespace pecia::test
