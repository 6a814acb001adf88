// SPDX-License-Identifier: Apache-2.0
/// Which experts a library for grouped products multiplies, and what it is given.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference/reference.hpp"
#include "lib/base/device/buffer.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/emulator/plain_grouped_matmul.hpp"
#include "tests/kernels/quantized_matrix.hpp"

namespace pecia::test {
namespace {

using kernels::Activation;
using kernels::Expert;
using kernels::RowInvariant;

class ExpertsByLibrary : public testing::Test {
 protected:
  static constexpr int64_t hidden = 48, ffn = 32, count = 5, k = 2;

  struct Case {
    int64_t rows;
    DType dtype;
    Activation activation = Activation::silu;
    RowInvariant row_invariant = RowInvariant::no;
    int64_t width = hidden;
    kernels::Weighed weighed = kernels::Weighed::outputs;
  };
  struct Layer {
    explicit Layer(const Case& of)
        : x(Tensor::random({of.rows, of.width}, DType::fp32, 1, 3)),
          y(Tensor::filled({of.rows, of.width}, 5)) {
      for (int64_t e = 0; e < count; ++e) {
        const auto seed = static_cast<uint64_t>(10 * e);
        matrices.emplace_back(of.dtype, ffn, of.width, seed + 2);
        matrices.emplace_back(of.dtype, ffn, of.width, seed + 3);
        matrices.emplace_back(of.dtype, of.width, ffn, seed + 4);
        biases.push_back(Tensor::random({ffn}, DType::bf16, seed + 5));
        biases.push_back(Tensor::random({ffn}, DType::fp16, seed + 6));
        biases.push_back(Tensor::random({of.width}, DType::fp32, seed + 7));
      }
      for (int64_t row = 0; row < of.rows; ++row)
        for (int64_t j = 0; j < k; ++j) {  // of five experts the fourth is chosen by none
          const int64_t expert = (row / 3 + j) % (count - 1);
          chosen.push_back(static_cast<int32_t>(expert == 3 ? 4 : expert));
          weights.push_back(0.25f + 0.5f * static_cast<float>((row + j) % 3));
        }
      for (int64_t e = 0; e < count; ++e)
        experts.push_back({.gate = matrices[3 * e].view(),
                           .up = matrices[3 * e + 1].view(),
                           .down = matrices[3 * e + 2].view(),
                           .gate_scales = matrices[3 * e].scales(),
                           .up_scales = matrices[3 * e + 1].scales(),
                           .down_scales = matrices[3 * e + 2].scales(),
                           .gate_bias = bias_of(of, biases[3 * e]),
                           .up_bias = bias_of(of, biases[3 * e + 1]),
                           .down_bias = biases[3 * e + 2].view(),
                           .gate_factor = matrices[3 * e].factor(),
                           .up_factor = matrices[3 * e + 1].factor(),
                           .down_factor = matrices[3 * e + 2].factor()});
      args = {.x = x.view(),
              .chosen = TensorView(chosen.data(), DType::int32, {of.rows, k}),
              .weights = TensorView(weights.data(), DType::fp32, {of.rows, k}),
              .experts = experts,
              .y = y.view(),
              .activation = of.activation,
              .weighed = of.weighed,
              .row_invariant = of.row_invariant};
    }
    static TensorView bias_of(const Case& of, Tensor& bias) {
      return of.weighed == kernels::Weighed::inputs ? TensorView() : bias.view();
    }
    Tensor x, y;
    std::vector<QuantizedMatrix> matrices;
    std::vector<Tensor> biases;
    std::vector<int32_t> chosen;
    std::vector<float> weights;
    std::vector<Expert> experts;
    kernels::ExpertsArgs args;
  };

  /// Compares with the reference and returns how many grouped products there were.
  int calls_of(const Case& of, kernels::Backend& backend) {
    Layer layer(of);
    calls_ = 0;
    device::Stream stream(1);
    backend.experts(layer.args, stream);
    const std::vector<float> found = layer.y.values();
    kernels::reference::experts(layer.args);
    const double size = static_cast<double>(of.width) * std::sqrt(static_cast<double>(ffn * k));
    // x, gates, activations and products are rounded to bf16.
    EXPECT_TRUE(all_close(found, layer.y.values(), 8 * 0x1p-8 * size, 4 * 0x1p-8))
        << of.rows << " rows of " << name_of(of.dtype);
    return calls_;
  }
  int calls_of(const Case& of) { return calls_of(of, *backend_); }

  int calls_ = 0;
  std::unique_ptr<device::Device> host_ = device::make_host_device(1);
  std::unique_ptr<kernels::Backend> backend_ =
      make_emulated_backend(*host_, make_plain_grouped_matmul(calls_));
};

TEST_F(ExpertsByLibrary, AreThoseOfManyRowsEach) {
  EXPECT_EQ(calls_of({40, DType::bf16}), 3) << "gate, up and down of 16 rows each";
  EXPECT_EQ(calls_of({39, DType::bf16}), 0);
  EXPECT_EQ(calls_of({320, DType::mxfp4}), 3) << "128 rows";
  EXPECT_EQ(calls_of({319, DType::mxfp4}), 0);
}

TEST_F(ExpertsByLibrary, HaveEveryActivationAndEveryType) {
  for (const auto activation : {Activation::silu, Activation::gelu_tanh, Activation::clamped})
    EXPECT_EQ(calls_of({50, DType::bf16, activation}), 3);
  for (const DType dtype : {DType::int8, DType::int4, DType::fp8})
    EXPECT_EQ(calls_of({320, dtype}), 3);
  Case of_nvfp4{320, DType::nvfp4};
  EXPECT_EQ(calls_of(of_nvfp4), 0) << "rows of 24 bytes";
  of_nvfp4.width = 64;
  EXPECT_EQ(calls_of(of_nvfp4), 3);
}

TEST_F(ExpertsByLibrary, GetRowsTimesTheirWeightsWhereInputsAreWeighed) {
  constexpr auto inputs = kernels::Weighed::inputs;
  EXPECT_EQ(calls_of({40, DType::bf16, Activation::silu, RowInvariant::no, hidden, inputs}), 3);
  EXPECT_EQ(calls_of({320, DType::mxfp4, Activation::silu, RowInvariant::no, hidden, inputs}), 3);
}

TEST_F(ExpertsByLibrary, AreWidenedSomeAtATime) {
  constexpr int64_t of_one = hidden * ffn * 2;
  const auto backend = make_emulated_backend(*host_, make_plain_grouped_matmul(calls_), 2 * of_one);
  EXPECT_EQ(calls_of({320, DType::mxfp4}, *backend), 3 * 3) << "five experts, two at a time";
  const auto one_by_one = make_emulated_backend(*host_, make_plain_grouped_matmul(calls_), 1);
  EXPECT_EQ(calls_of({320, DType::fp8}, *one_by_one), 3 * 5);
}

TEST_F(ExpertsByLibrary, AreNoneWhereBitsOfRowsStayTheSame) {
  EXPECT_EQ(calls_of({50, DType::bf16, Activation::silu, RowInvariant::yes}), 0);
}

TEST_F(ExpertsByLibrary, AreNoneWhoseRowsDoNotLieAsItTakesThem) {
  EXPECT_EQ(calls_of({50, DType::bf16, Activation::silu, RowInvariant::no, 36}), 0);
}

TEST_F(ExpertsByLibrary, AreNamedByTheBackend) {
  EXPECT_EQ(backend_->expert_library(), "plain loops");
  EXPECT_EQ(make_emulated_backend(*host_)->expert_library(), "none: the emulator was given none");
}

}  // namespace
}  // namespace pecia::test
