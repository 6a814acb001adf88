// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulator/backend.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cuda/cuda.hpp"
#include "tests/support/late_stream.hpp"

namespace pecia::test {
namespace {

class PlainMatmul : public kernels::cuda::Matmul {
 public:
  explicit PlainMatmul(Products products) : products_(products) {}

  bool takes(const kernels::cuda::MatmulArgs& args) override {
    if (args.x_scales == nullptr) return true;
    return products_ == Products::with_scales ||
           (products_ == Products::with_scales_of_some_shapes &&
            args.x.size(1) <= most_scaled_depth);
  }
  void run(const kernels::cuda::MatmulArgs& args, device::Stream& stream) override {
    PECIA_CHECK(args.x.dtype() == args.weight.dtype() && takes(args), "{} by {}, depth {}",
                name_of(args.x.dtype()), name_of(args.weight.dtype()), args.x.size(1));
    const bool narrow = args.x.dtype() == DType::bf16 || args.x.dtype() == DType::fp8;
    PECIA_CHECK(args.y.dtype() == DType::fp32 ||
                    (args.y.dtype() == DType::bf16 && narrow && args.bias == nullptr &&
                     args.accumulate == kernels::Accumulate::no),
                "products of {} into {}", name_of(args.x.dtype()), name_of(args.y.dtype()));
    PECIA_CHECK(args.count == 1 || (args.bias == nullptr && args.x_scales == nullptr),
                "{} products with a bias or scales", args.count);
    submit(
        stream,
        [args] {
          for (int64_t i = 0; i < args.count; ++i) multiply(product(args, i));
        },
        kernels::cuda::work_of(args));
  }

 private:
  static TensorView moved(const TensorView& matrix, int64_t elements) {
    const auto* const data = static_cast<const char*>(matrix.data());
    return TensorView(data + elements * size_of(matrix.dtype()), matrix.dtype(),
                      {matrix.rows(), std::max(matrix.row_stride(), matrix.size(1))})
        .slice_columns(0, matrix.size(1));
  }
  static kernels::cuda::MatmulArgs product(kernels::cuda::MatmulArgs args, int64_t index) {
    if (args.count == 1) return args;
    args.x = moved(args.x, index * args.x_step);
    args.weight = moved(args.weight, index * args.weight_step);
    args.y = moved(args.y, index * args.y_step);
    return args;
  }
  static void multiply(const kernels::cuda::MatmulArgs& args) {
    for (int64_t t = 0; t < args.y.rows(); ++t)
      for (int64_t o = 0; o < args.y.size(1); ++o) {
        double sum = 0;
        for (int64_t i = 0; i < args.x.size(1); ++i)
          sum += double{load_as_float(args.x.row(t), args.x.dtype(), i)} *
                 load_as_float(args.weight.row(o), args.weight.dtype(), i);
        if (args.x_scales != nullptr) sum *= double{args.x_scales[t]} * args.weight_scales[o];
        if (args.bias != nullptr) sum += args.bias[o];
        if (args.accumulate == kernels::Accumulate::yes)
          sum += static_cast<const float*>(args.y.row(t))[o];
        store_from_float(args.y.row(t), args.y.dtype(), o, static_cast<float>(sum));
      }
  }

  Products products_;
};

class PlainRowSort : public kernels::cuda::RowSort {
 public:
  void run(const float* values, int64_t rows, int64_t columns, float* sorted,
           int32_t* sorted_columns, device::Stream& stream) override {
    submit(
        stream, [=] { sort(values, rows, columns, sorted, sorted_columns); }, values, rows, columns,
        sorted, sorted_columns);
  }

 private:
  static void sort(const float* values, int64_t rows, int64_t columns, float* sorted,
                   int32_t* sorted_columns) {
    for (int64_t row = 0; row < rows; ++row) {
      const float* const from = values + row * columns;
      int32_t* const order = sorted_columns + row * columns;
      std::iota(order, order + columns, 0);
      std::stable_sort(order, order + columns, [from](int32_t a, int32_t b) {
        return from[a] > from[b] || (std::isnan(from[a]) && !std::isnan(from[b]));
      });
      for (int64_t i = 0; i < columns; ++i) sorted[row * columns + i] = from[order[i]];
    }
  }
};

}  // namespace

std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& device, Products products) {
  return kernels::cuda::make_backend(device, {std::make_unique<PlainMatmul>(products),
                                              std::make_unique<PlainRowSort>(),
                                              {nullptr, "the emulator was given none"},
                                              {nullptr, "the emulator was given none"}});
}

std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& device,
                                                        std::unique_ptr<kernels::cuda::Sdpa> sdpa) {
  return kernels::cuda::make_backend(device, {std::make_unique<PlainMatmul>(Products::with_scales),
                                              std::make_unique<PlainRowSort>(),
                                              {std::move(sdpa), ""},
                                              {nullptr, "the emulator was given none"}});
}

std::unique_ptr<kernels::Backend> make_emulated_backend(
    device::Device& device, std::unique_ptr<kernels::cuda::GroupedMatmul> grouped_matmul,
    int64_t widened_expert_bytes) {
  return make_emulated_backend_of_groups(
      device, {.matmul = std::move(grouped_matmul), .is_checked_at_start = false},
      widened_expert_bytes);
}

std::unique_ptr<kernels::Backend> make_emulated_backend_of_groups(
    device::Device& device, kernels::cuda::FoundGroupedMatmul grouped_matmul,
    int64_t widened_expert_bytes) {
  return kernels::cuda::make_backend(device, {std::make_unique<PlainMatmul>(Products::with_scales),
                                              std::make_unique<PlainRowSort>(),
                                              {nullptr, "the emulator was given none"},
                                              std::move(grouped_matmul),
                                              widened_expert_bytes});
}

std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& device,
                                                        kernels::cuda::FoundWgmmaAttention wgmma,
                                                        std::unique_ptr<kernels::cuda::Sdpa> sdpa) {
  kernels::cuda::Libraries libraries = {std::make_unique<PlainMatmul>(Products::with_scales),
                                        std::make_unique<PlainRowSort>(),
                                        {std::move(sdpa), "the emulator was given none"},
                                        {nullptr, "the emulator was given none"}};
  libraries.wgmma = std::move(wgmma);
  return kernels::cuda::make_backend(device, std::move(libraries));
}

}  // namespace pecia::test
