// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes small model.safetensors files: https://huggingface.co/docs/safetensors

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/compare.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {

class CheckpointFile {
 public:
  struct Tensor {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  /// Tensors by name, to be changed at will before writing.
  std::map<std::string, Tensor> tensors;

  /// A tensor whose elements are first, first + 1, …: no two alike, and exact in every float type
  /// as long as they stay below 256.
  void add(const std::string& name, std::vector<int64_t> shape, float first = 0.0f,
           DType dtype = DType::fp32) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    Tensor tensor{dtype, std::move(shape), std::vector<float>(count)};
    for (int64_t i = 0; i < count; ++i) tensor.values[i] = first + static_cast<float>(i);
    tensors[name] = std::move(tensor);
  }

  void write(const TempFolder& folder) const {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      const std::string bytes = bytes_of(tensor);
      header[name] = {{"dtype", type_name(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + bytes.size()}}};
      data += bytes;
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::string size(sizeof length, '\0');
    std::memcpy(size.data(), &length, sizeof length);
    folder.write("model.safetensors", size + text + data);
  }

 private:
  static std::string bytes_of(const Tensor& tensor) {
    if (tensor.dtype == DType::uint8) {
      std::string bytes;
      for (const float value : tensor.values)
        bytes += static_cast<char>(static_cast<uint8_t>(value));
      return bytes;
    }
    if (!is_float(tensor.dtype) && tensor.dtype != DType::fp8)
      return std::string(tensor.values.size() * size_of(tensor.dtype), '\1');
    const std::vector<std::byte> bytes = stored_as(tensor.dtype, tensor.values);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  static std::string type_name(DType dtype) {
    switch (dtype) {
      case DType::fp32:
        return "F32";
      case DType::bf16:
        return "BF16";
      case DType::fp16:
        return "F16";
      case DType::fp8:
        return "F8_E4M3";
      case DType::int8:
        return "I8";
      case DType::int4:
      case DType::mxfp4:
      case DType::nvfp4:
        break;  // no type of safetensors
      case DType::int32:
        return "I32";
      case DType::int64:
        return "I64";
      case DType::uint8:
        return "U8";
    }
    return "";
  }
};

}  // namespace pecia::test
