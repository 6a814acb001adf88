// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What cases of all ops are made of: models, tensors with numbers, and the bytes of shapes.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "apps/bench/ops/cases.hpp"
#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_vector.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::bench::ops {

using device::Buffer;

/// The sizes of a model whose shapes are timed.
struct Model {
  std::string name;
  int64_t hidden, ffn, num_heads, num_kv_heads, head_dim, vocab;
};
inline const Model smol{"SmolLM2-135M", 576, 1536, 9, 3, 64, 49152};
inline const Model llama{"Llama-3.1-8B", 4096, 14336, 32, 8, 128, 128256};
inline const Model gpt_oss_heads{"gpt-oss-20b", 2880, 2880, 64, 8, 64, 201088};
inline const Model gemma{"gemma-3-4b", 2560, 10240, 8, 4, 256, 262208};
inline const Model square{"square", 2048, 2048, 32, 32, 64, 2048};

/// A tensor in memory that its copies share. It holds numbers in (−1, 1) that repeat after a few
/// thousand.
struct Tensor {
  std::shared_ptr<Buffer> buffer;
  TensorView view;

  operator const TensorView&() const { return view; }

  Tensor(const Place& place, DType dtype, std::initializer_list<int64_t> shape)
      : Tensor(place, dtype, shape, [](float value) { return value; }) {}

  template <typename Change>
  Tensor(const Place& place, DType dtype, std::initializer_list<int64_t> shape,
         const Change& change)
      : buffer(std::make_shared<Buffer>(place.device, device::Memory::device)),
        view(buffer->tensor(dtype, shape)) {
    constexpr int64_t period = 8191;
    Buffer host(view.elements() * size_of(dtype));
    const auto number = [&](int64_t i) {
      return change(static_cast<float>(i * 7919 % period) / 4096.0f - 1.0f);
    };
    const bool integers = dtype == DType::int8 || numbers_of(dtype) > 1;
    for (int64_t i = 0; i < std::min(period, view.elements()); ++i)
      if (integers)  // any code will do
        std::memset(host.as<std::byte>() + i * size_of(dtype), static_cast<int>(100 * number(i)),
                    size_of(dtype));
      else
        store_from_float(host.data(), dtype, i, number(i));
    for (int64_t done = period; done < view.elements(); done *= 2)
      std::memcpy(host.as<std::byte>() + done * size_of(dtype), host.data(),
                  std::min(done, view.elements() - done) * size_of(dtype));
    place.device.copy(view.data(), host.data(), host.bytes(), place.stream);
    place.stream.synchronize();
  }
};

inline double bytes_of(std::initializer_list<int64_t> shape, DType dtype = DType::fp32) {
  double bytes = static_cast<double>(size_of(dtype));
  for (const int64_t extent : shape) bytes *= static_cast<double>(extent);
  return bytes;
}

/// Bytes of `count` vectors of a KV cache.
inline double vectors_bytes(int64_t count, int64_t head_dim, DType dtype) {
  return static_cast<double>(count * vector_bytes(dtype, head_dim));
}

/// first, first + 1, …
inline std::vector<int64_t> numbers_from(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// The scales in the shape that products take.
inline TensorView scales_of(const TensorView& scales, DType weights) {
  if (!is_code(weights)) return {};
  return numbers_of(weights) > 1 ? scales : scales.reshape({scales.rows()});
}

}  // namespace pecia::bench::ops
