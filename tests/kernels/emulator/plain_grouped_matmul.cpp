// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulator/plain_grouped_matmul.hpp"

#include <cmath>

#include "lib/base/core/error.hpp"
#include "tests/support/late_stream.hpp"

namespace pecia::test {
namespace {

using kernels::Activation;
using kernels::cuda::Bf16;
using kernels::cuda::Fp8;
using kernels::cuda::GroupedMatmulArgs;

double activated(Activation activation, double gate, double up) {
  switch (activation.kind) {
    case Activation::Kind::silu:
      return gate / (1 + std::exp(-gate)) * up;
    case Activation::Kind::gelu_tanh:
      return 0.5 * gate *
             (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case Activation::Kind::clamped:
      if (gate > activation.limit) gate = activation.limit;
      up = up > activation.limit    ? activation.limit
           : up < -activation.limit ? -activation.limit
                                    : up;
      return gate / (1 + std::exp(-activation.slope * gate)) * (1 + up);
    case Activation::Kind::sigmoid:
      return up / (1 + std::exp(-gate));
    case Activation::Kind::relu:
      return (gate < 0 ? 0 : gate) * up;
  }
  return NAN;
}

template <typename T>
void require_rows_of_16_bytes(const void* data, int64_t stride) {
  PECIA_CHECK(reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * sizeof(T) % 16 == 0,
              "rows at {}, {} elements apart", data, stride);
}

template <typename T>
void multiply(const GroupedMatmulArgs& args, double factor) {
  const auto& arrays = args.arrays;
  for (int64_t g = 0; g < args.groups; ++g) {
    const auto [rows, columns, depth] = arrays.shapes[g];
    PECIA_CHECK(columns == args.columns, "{} columns, of {}", columns, args.columns);
    if (rows == 0) continue;  // nothing of it is looked at
    require_rows_of_16_bytes<T>(arrays.x[g], arrays.x_strides[g]);
    require_rows_of_16_bytes<T>(arrays.weights[g], arrays.weight_strides[g]);
    require_rows_of_16_bytes<Bf16>(arrays.y[g], arrays.y_strides[g]);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t o = 0; o < columns; ++o) {
        const T* const x = static_cast<const T*>(arrays.x[g]) + t * arrays.x_strides[g];
        const T* const weights =
            static_cast<const T*>(arrays.weights[g]) + o * arrays.weight_strides[g];
        double sum = 0;
        for (int64_t i = 0; i < depth; ++i)
          sum += double{kernels::cuda::widen(x[i])} * kernels::cuda::widen(weights[i]);
        if constexpr (std::is_same_v<T, Fp8>)
          sum *= factor * arrays.x_scales[g][t] * arrays.weight_scales[g * columns + o];
        sum += arrays.bias[g * columns + o];
        Bf16& y = arrays.y[g][t * arrays.y_strides[g] + o];
        if (args.of_gates) sum = activated(*args.of_gates, kernels::cuda::widen(y), sum);
        y = kernels::cuda::rounded_to<Bf16>(static_cast<float>(sum));
      }
  }
}

class PlainGroupedMatmul : public kernels::cuda::GroupedMatmul {
 public:
  PlainGroupedMatmul(int& calls, double fp8_factor) : calls_(calls), fp8_factor_(fp8_factor) {}

  std::string name() const override { return "plain loops"; }
  void run(const GroupedMatmulArgs& args, device::Stream& stream) override {
    ++calls_;
    PECIA_CHECK(args.type == DType::bf16 || args.type == DType::fp8, "groups of {}",
                name_of(args.type));
    submit(
        stream,
        [args, factor = fp8_factor_] {
          args.type == DType::fp8 ? multiply<Fp8>(args, factor) : multiply<Bf16>(args, factor);
        },
        kernels::cuda::work_of(args));
  }

 private:
  int& calls_;
  double fp8_factor_;
};

}  // namespace

std::unique_ptr<kernels::cuda::GroupedMatmul> make_plain_grouped_matmul(int& calls,
                                                                        double fp8_factor) {
  return std::make_unique<PlainGroupedMatmul>(calls, fp8_factor);
}

}  // namespace pecia::test
