// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/code_rows.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/core/codes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/code_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Vector = hn::Vec<Wide>;
constexpr int64_t lanes = hn::MaxLanes(Wide());
constexpr float least_scale = 0x1p-126f;
constexpr int words_of_group = 32;

struct Range {
  float least, greatest;
};

Range range_of(const float* numbers, int64_t count) {
  const Wide d;
  Vector least = hn::Set(d, numbers[0]), greatest = least;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vector x = hn::LoadU(d, numbers + i);
    least = hn::Min(least, x), greatest = hn::Max(greatest, x);
  }
  Range range{hn::GetLane(hn::MinOfLanes(d, least)), hn::GetLane(hn::MaxOfLanes(d, greatest))};
  for (; i < count; ++i)
    range.least = std::min(range.least, numbers[i]),
    range.greatest = std::max(range.greatest, numbers[i]);
  return range;
}

/// (numbers − from) · factor, to nearest even, as int32, in whole vectors: `numbers` and `to` have
/// room for them.
void round_to_codes(const float* numbers, int64_t count, float from, float factor, int32_t most,
                    int32_t* to) {
  const Wide d;
  const hn::RebindToSigned<Wide> di;
  for (int64_t i = 0; i < count; i += lanes) {
    const Vector x =
        hn::Mul(hn::Sub(hn::LoadU(d, numbers + i), hn::Set(d, from)), hn::Set(d, factor));
    hn::StoreU(hn::Min(hn::NearestInt(x), hn::Set(di, most)), di, to + i);
  }
}

void encode_int8(const float* numbers, int64_t count, int8_t* codes, float* scale) {
  const Range range = count > 0 ? range_of(numbers, count) : Range{0, 0};
  *scale = std::max(std::max(-range.least, range.greatest) / 127, least_scale);
  for (int64_t i = 0; i < count; i += int4_group) {
    const int64_t some = std::min(int4_group, count - i);
    float block[int4_group] = {};
    int32_t rounded[int4_group];
    std::copy_n(numbers + i, some, block);
    round_to_codes(block, some, 0, 1 / *scale, 127, rounded);
    for (int64_t j = 0; j < some; ++j) codes[i + j] = static_cast<int8_t>(rounded[j]);
  }
}

void encode_int4(const float* numbers, int64_t count, uint16_t* words, float* scales) {
  for (int64_t i = 0; i < count; i += int4_group, words += words_of_group, scales += 2) {
    const int64_t some = std::min(int4_group, count - i);
    const Range range = range_of(numbers + i, some);
    scales[0] = std::max((range.greatest - range.least) / 15, least_scale);
    scales[1] = range.least;
    float block[int4_group];
    int32_t rounded[int4_group];
    std::fill(std::copy_n(numbers + i, some, block), block + int4_group, range.least);
    round_to_codes(block, int4_group, range.least, 1 / scales[0], 15, rounded);
    for (int w = 0; w < words_of_group; ++w)
      words[w] = static_cast<uint16_t>(rounded[w] | rounded[32 + w] << 4 | rounded[64 + w] << 8 |
                                       rounded[96 + w] << 12);
  }
}

void EncodeRow(const float* numbers, int64_t count, DType dtype, void* codes, float* scales) {
  if (dtype == DType::int8)
    encode_int8(numbers, count, static_cast<int8_t*>(codes), scales);
  else
    encode_int4(numbers, count, static_cast<uint16_t*>(codes), scales);
}

void decode_int8(const int8_t* codes, float scale, int64_t count, float* numbers) {
  const Wide d;
  const hn::Rebind<int32_t, Wide> di;
  const hn::Rebind<int8_t, Wide> d8;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(
        hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, codes + i))), hn::Set(d, scale)),
        d, numbers + i);
  for (; i < count; ++i) numbers[i] = static_cast<float>(codes[i]) * scale;
}

void decode_int4(const uint16_t* words, const float* scales, int64_t shared_by, int64_t count,
                 float* numbers) {
  const Wide d;
  const hn::Rebind<int32_t, Wide> di;
  const hn::Rebind<uint16_t, Wide> d16;
  const int64_t shares = int4_group / shared_by;
  for (int64_t i = 0; i < count; i += int4_group, words += words_of_group, scales += 2 * shares) {
    for (int w = 0; w < words_of_group; w += lanes) {
      auto word = hn::PromoteTo(di, hn::LoadU(d16, words + w));
      for (int k = 0; k < 4; ++k, word = hn::ShiftRight<4>(word)) {
        const float* const scale = scales + k * shares / 4 * 2;
        const auto code = hn::ConvertTo(d, hn::And(word, hn::Set(di, 15)));
        hn::StoreU(hn::Add(hn::Set(d, scale[1]), hn::Mul(code, hn::Set(d, scale[0]))), d,
                   numbers + i + 32 * k + w);
      }
    }
  }
}

/// The magnitudes of codes of FP4, whose highest bit is the sign. They lie in a table of eight; where
/// vectors are shorter, a code's exponent and fraction are those of a number of fp32 near 2^-127.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fp4_magnitudes(D d, hn::Vec<hn::RebindToSigned<D>> codes) {
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(codes, hn::Set(di, 7));
  if constexpr (hn::MaxLanes(D()) >= 8) {
    alignas(64) static constexpr float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6,
                                                       0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return hn::TableLookupLanes(hn::Load(d, magnitudes), hn::IndicesFromVec(d, magnitude));
  } else {
    return hn::Mul(hn::BitCast(d, hn::ShiftLeft<22>(magnitude)), hn::Set(d, 0x1p126f));
  }
}

/// Codes of FP4 in blocks of `kBlock`, each with a factor.
template <int64_t kBlock, typename FactorOf>
void decode_fp4(const uint8_t* blocks, int64_t count, const FactorOf& factor_of, float* numbers) {
  constexpr int64_t block_bytes = kBlock / 2;
  const hn::CappedTag<float, block_bytes> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto number = [&](auto codes, auto factor) {
    const auto sign = hn::ShiftLeft<28>(hn::And(codes, hn::Set(di, 8)));
    return hn::Mul(hn::Or(fp4_magnitudes(d, codes), hn::BitCast(d, sign)), factor);
  };
  for (int64_t i = 0; i < count; i += kBlock, blocks += block_bytes) {
    const auto factor = hn::Set(d, factor_of(i / kBlock));
    for (int64_t b = 0; b < block_bytes; b += hn::MaxLanes(d)) {
      const auto pairs = hn::PromoteTo(di, hn::LoadU(d8, blocks + b));
      hn::StoreInterleaved2(number(pairs, factor), number(hn::ShiftRight<4>(pairs), factor), d,
                            numbers + i + 2 * b);
    }
  }
}

void DecodeRow(const void* codes, DType dtype, const void* scales, int64_t begin, int64_t count,
               float* numbers, int64_t shared_by, float factor) {
  const auto* const factors = static_cast<const float*>(scales);
  if (dtype == DType::int8)
    return decode_int8(static_cast<const int8_t*>(codes) + begin, *factors, count, numbers);
  if (dtype == DType::mxfp4 || dtype == DType::nvfp4) {
    const auto* const blocks = static_cast<const uint8_t*>(codes) + begin / 2;
    const auto* const of_blocks = static_cast<const uint8_t*>(scales) + begin / numbers_of(dtype);
    if (dtype == DType::mxfp4)
      return decode_fp4<mxfp4_block>(
          blocks, count, [&](int64_t block) { return power_of_scale(of_blocks[block]); }, numbers);
    const float* const wide = fp8_numbers();
    return decode_fp4<nvfp4_block>(
        blocks, count, [&](int64_t block) { return wide[of_blocks[block]] * factor; }, numbers);
  }
  const int64_t group = begin / int4_group;
  decode_int4(static_cast<const uint16_t*>(codes) + group * words_of_group,
              factors + begin / shared_by * 2, shared_by, count, numbers);
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(EncodeRow);
HWY_EXPORT(DecodeRow);

void encode_row(const float* numbers, int64_t count, DType dtype, void* codes, float* scales) {
  HWY_DYNAMIC_DISPATCH(EncodeRow)(numbers, count, dtype, codes, scales);
}

void decode_row(const void* codes, DType dtype, const void* scales, int64_t begin, int64_t count,
                float* numbers, int64_t shared_by, float factor) {
  HWY_DYNAMIC_DISPATCH(DecodeRow)(codes, dtype, scales, begin, count, numbers, shared_by, factor);
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
