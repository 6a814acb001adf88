// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stored_matrices.hpp"

#include <cmath>
#include <cstring>

#include "lib/base/core/fp8_blocks.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::test {
namespace {

bool has_zeros(Stored stored) {
  return stored == Stored::gptq || stored == Stored::awq;
}

bool is_fp8(Stored stored) {
  return stored == Stored::fp8_rows || stored == Stored::fp8_blocks;
}

int64_t group_of(Stored stored) {
  return stored == Stored::int4_by_32 ? 32 : stored == Stored::int4_by_64 ? 64 : 128;
}

/// Adds the matrix NAME.qweight with zeros of 7 to 9, which GPTQ stores less one.
void add_with_zeros(std::vector<NamedTensor>& to, Stored stored, const std::string& name,
                    int64_t out, int64_t in, uint64_t seed) {
  const auto words = [&](const char* what, std::vector<int64_t> shape, const auto& word) {
    std::vector<std::byte> bytes(4 * shape[0] * (shape.size() > 1 ? shape[1] : 1));
    for (size_t i = 0; i < bytes.size() / 4; ++i) {
      const uint32_t value = word(i);
      std::memcpy(bytes.data() + 4 * i, &value, sizeof value);
    }
    to.push_back({name + what, "I32", std::move(shape), std::move(bytes)});
  };
  const bool gptq = stored == Stored::gptq;
  const int64_t groups = (in + group_of(stored) - 1) / group_of(stored);
  words(".qweight", gptq ? std::vector{in / 8, out} : std::vector{in, out / 8},
        [&](size_t i) { return static_cast<uint32_t>(mix(seed, i)); });
  words(".qzeros", {groups, out / 8}, [&](size_t i) {
    uint32_t zeros = 0;
    for (int place = 0; place < 8; ++place)
      zeros |= static_cast<uint32_t>((gptq ? 6 : 7) + mix(seed + 2000, 8 * i + place) % 3)
               << (4 * place);
    return zeros;
  });
  if (gptq)
    words(".g_idx", {in}, [&](size_t i) { return static_cast<uint32_t>(i) / group_of(stored); });
  std::vector<float> scales(groups * out);
  for (size_t i = 0; i < scales.size(); ++i)  // codes have a deviation of 4.6
    scales[i] = static_cast<float>((0.5 + uniform(seed + 1000, i)) / std::sqrt(double(in)) / 4.6);
  to.push_back(float_tensor(name + ".scales", DType::fp16, {groups, out}, scales));
}

/// Adds the matrix NAME.weight in NVFP4, whose factor is that of no other matrix.
void add_nvfp4(std::vector<NamedTensor>& to, const std::string& name, int64_t out, int64_t in,
               uint64_t seed) {
  std::vector<std::byte> codes(out * in / 2), scales(out * in / 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(mix(seed, i) & 0xff);
  for (size_t i = 0; i < scales.size(); ++i)  // from 0.5 to 1.875
    scales[i] = static_cast<std::byte>(0x30 + mix(seed + 1000, i) % 16);
  to.push_back({name + ".weight", "U8", {out, in / 2}, codes});
  to.push_back({name + ".weight_scale", "F8_E4M3", {out, in / 16}, scales});
  // Codes have a deviation of 2.9, and scales one of 1.2.
  const double step = (0.9 + 0.01 * static_cast<double>(seed)) / std::sqrt(double(in)) / 2.9 / 1.2;
  const std::vector<float> factor = {static_cast<float>(step)};
  to.push_back(float_tensor(name + ".weight_scale_2", DType::fp32, {1}, factor));
}

}  // namespace

std::string name_of(Stored stored) {
  switch (stored) {
    case Stored::bf16:
      return "bf16";
    case Stored::int8:
      return "int8";
    case Stored::fp8_rows:
      return "fp8_rows";
    case Stored::fp8_blocks:
      return "fp8_blocks";
    case Stored::int4_by_32:
    case Stored::int4_by_64:
    case Stored::int4_by_128:
      return "int4_by_" + std::to_string(group_of(stored));
    case Stored::gptq:
      return "gptq";
    case Stored::awq:
      return "awq";
    case Stored::nvfp4:
      return "nvfp4";
  }
  return "";
}

NamedTensor random_matrix(const std::string& name, int64_t out, int64_t in, uint64_t seed) {
  std::vector<float> values(out * in);
  for (size_t i = 0; i < values.size(); ++i)  // of deviation 1/√in
    values[i] = static_cast<float>((uniform(seed, i) - 0.5) * std::sqrt(12.0 / double(in)));
  return float_tensor(name, DType::bf16, {out, in}, values);
}

void add_matrix(std::vector<NamedTensor>& to, Stored stored, const std::string& name, int64_t out,
                int64_t in, uint64_t seed) {
  if (stored == Stored::bf16) return to.push_back(random_matrix(name + ".weight", out, in, seed));
  if (has_zeros(stored)) return add_with_zeros(to, stored, name, out, in, seed);
  if (stored == Stored::nvfp4) return add_nvfp4(to, name, out, in, seed);
  const bool fp8 = is_fp8(stored), bytes = fp8 || stored == Stored::int8;
  std::vector<std::byte> codes(bytes ? out * in : out * in / 2);
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<uint8_t>(mix(seed, i));
    const bool is_none = fp8 ? (code & 0x7f) == 0x7f : bytes && code == 0x80;  // NaN; −128
    codes[i] = std::byte{is_none ? uint8_t{0} : code};
  }
  // Codes of int8 have a deviation of 73, of fp8 of 118, and of −8 … 7 of 4.6.
  const double step = 1 / std::sqrt(double(in)) / (fp8 ? 118 : bytes ? 73 : 4.6);
  const bool blocks = stored == Stored::fp8_blocks;
  const int64_t groups = bytes && !blocks ? 1 : (in + group_of(stored) - 1) / group_of(stored);
  const int64_t scaled_rows = blocks ? fp8_blocks(out) : out;
  std::vector<float> scales(scaled_rows * groups);
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = static_cast<float>(step * (0.5 + uniform(seed + 1000, i)));
  to.push_back({name + (bytes ? ".weight" : ".weight_packed"),
                fp8     ? "F8_E4M3"
                : bytes ? "I8"
                        : "I32",
                {out, bytes ? in : in / 8},
                codes});
  to.push_back(float_tensor(name + (blocks ? ".weight_scale_inv" : ".weight_scale"), DType::bf16,
                            {scaled_rows, groups}, scales));
  if (bytes) return;
  const int64_t shape[] = {out, in};
  const auto* const begin = reinterpret_cast<const std::byte*>(shape);
  to.push_back({name + ".weight_shape", "I64", {2}, {begin, begin + sizeof shape}});
}

nlohmann::json quantization_of(Stored stored) {
  if (stored == Stored::bf16) return nullptr;
  if (stored == Stored::nvfp4) return {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  if (has_zeros(stored))
    return {{"quant_method", stored == Stored::gptq ? "gptq" : "awq"},
            {"bits", 4},
            {"group_size", group_of(stored)}};
  if (stored == Stored::fp8_blocks)
    return {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};
  const bool fp8 = is_fp8(stored), bytes = fp8 || stored == Stored::int8;
  nlohmann::json weights = {{"num_bits", bytes ? 8 : 4},
                            {"type", fp8 ? "float" : "int"},
                            {"symmetric", true},
                            {"strategy", bytes ? "channel" : "group"}};
  if (!bytes) weights["group_size"] = group_of(stored);
  return {{"quant_method", "compressed-tensors"},
          {"format", fp8     ? "float-quantized"
                     : bytes ? "int-quantized"
                             : "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

}  // namespace pecia::test
