// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/convert.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace pecia::model {
namespace {

// Elements per block: it fits the first-level cache and outweighs the bookkeeping per block.
constexpr int64_t block_elements = 4096;

/// Equals fp16_to_float of lib/base/core, but has no branches, so that loops over it are vectorised.
inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = uint32_t{half & 0x7fffu} << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

/// Equals float_to_fp16 of lib/base/core, but has no branches. It adds a number 2^13 times the least
/// half digit, so that the hardware rounds at that digit.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  const float saturated = magnitude * 0x1p112f * 0x1p-110f;
  const uint32_t exponent = std::max(bits & 0x7f800000u, 0x38800000u);
  const float rounded = std::bit_cast<float>(exponent + 0x07800000u) + saturated;
  const uint32_t rounded_bits = std::bit_cast<uint32_t>(rounded);
  const uint32_t number = ((rounded_bits >> 13) & 0x7c00u) + (rounded_bits & 0xfffu);
  const uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7e00u : number;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | result);
}

struct Fp32 {
  using Bits = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
};
struct Bf16 {
  using Bits = uint16_t;
  static float load(uint16_t bits) { return bf16_to_float(bits); }
  static uint16_t store(float value) { return float_to_bf16(value); }
};
struct Fp16 {
  using Bits = uint16_t;
  static float load(uint16_t bits) { return half_to_float(bits); }
  static uint16_t store(float value) { return float_to_half(value); }
};

template <typename Visit>
void with_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::fp32:
      return visit(Fp32{});
    case DType::bf16:
      return visit(Bf16{});
    case DType::fp16:
      return visit(Fp16{});
    case DType::fp8:
    case DType::int8:
    case DType::int4:
    case DType::mxfp4:
    case DType::nvfp4:
    case DType::int32:
    case DType::int64:
    case DType::uint8:
      break;
  }
  fail<InvalidArgument>("{} is not a float type", name_of(dtype));
}

template <typename From, typename To>
void convert_block(const typename From::Bits* from, typename To::Bits* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = To::store(From::load(from[i]));
}

/// Whether any element has all exponent bits set. There is no early exit, so that the loop is
/// vectorised.
template <typename Bits>
bool any_not_finite(const Bits* data, Bits exponent_mask, int64_t count) {
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i)
    found |= static_cast<Bits>((data[i] & exponent_mask) == exponent_mask);
  return found != 0;
}

/// Calls body(block) for each block. Free threads take the blocks in order.
template <typename Body>
void for_each_block(device::ThreadPool& pool, int64_t blocks, const Body& body) {
  std::atomic<int64_t> next{0};
  const auto work = [&](int) {
    for (int64_t block; (block = next.fetch_add(1)) < blocks;) body(block);
  };
  if (blocks > 1)
    pool.run(work, [] {});
  else
    work(0);
}

template <typename Bits>
std::optional<int64_t> first_not_finite_of(const Bits* data, Bits exponent_mask, int64_t begin,
                                           int64_t end, device::ThreadPool& pool) {
  const int64_t blocks = (end - begin + block_elements - 1) / block_elements;
  std::atomic<int64_t> first_block{blocks};
  for_each_block(pool, blocks, [&](int64_t block) {
    const int64_t start = begin + block * block_elements;
    if (!any_not_finite(data + start, exponent_mask, std::min(block_elements, end - start))) return;
    for (int64_t first = first_block; block < first;)
      if (first_block.compare_exchange_weak(first, block)) break;
  });
  for (int64_t i = begin + first_block * block_elements; i < end; ++i)
    if ((data[i] & exponent_mask) == exponent_mask) return i;
  return {};
}

}  // namespace

void convert(const TensorView& from, const TensorView& to, device::ThreadPool& pool) {
  PECIA_CHECK(to.dense() && from.elements() == to.elements(),
              "conversion of {} elements to {}, which are dense", from.elements(), to.elements());
  const int64_t width = from.dense() ? from.elements() : from.row_elements();
  const int64_t rows = width == 0 ? 0 : from.elements() / width;
  const int64_t blocks = (width + block_elements - 1) / block_elements;  // blocks per row
  with_type(from.dtype(), [&](auto from_type) {
    with_type(to.dtype(), [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      const auto* source = from.as<typename From::Bits>();
      auto* target = to.as<typename To::Bits>();
      for_each_block(pool, rows * blocks, [&](int64_t block) {
        const int64_t row = block / blocks, begin = block % blocks * block_elements;
        convert_block<From, To>(source + row * from.row_stride() + begin,
                                target + row * width + begin,
                                std::min(block_elements, width - begin));
      });
    });
  });
}

std::optional<int64_t> first_not_finite(const TensorView& tensor, int64_t begin, int64_t end,
                                        device::ThreadPool& pool) {
  PECIA_CHECK(tensor.dense() && begin >= 0 && begin <= end && end <= tensor.elements(),
              "elements [{}, {}) of {}", begin, end, tensor.elements());
  switch (tensor.dtype()) {
    case DType::fp32:
      return first_not_finite_of<uint32_t>(tensor.as<uint32_t>(), 0x7f800000u, begin, end, pool);
    case DType::bf16:
      return first_not_finite_of<uint16_t>(tensor.as<uint16_t>(), 0x7f80u, begin, end, pool);
    case DType::fp16:
      return first_not_finite_of<uint16_t>(tensor.as<uint16_t>(), 0x7c00u, begin, end, pool);
    case DType::fp8:
      return first_not_finite_of<uint8_t>(tensor.as<uint8_t>(), 0x7fu, begin, end, pool);
    case DType::int8:
    case DType::int4:
    case DType::mxfp4:
    case DType::nvfp4:
    case DType::int32:
    case DType::int64:
    case DType::uint8:
      break;
  }
  fail<InvalidArgument>("{} is not a float type", name_of(tensor.dtype()));
}

}  // namespace pecia::model
