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
    QuantizedMatrix::Fp8Scales scales = QuantizedMatrix::Fp8Scales::blocks;
  };
  struct Layer {
    explicit Layer(const Case& of)
        : x(Tensor::random({of.rows, of.width}, DType::fp32, 1, 3)),
          y(Tensor::filled({of.rows, of.width}, 5)) {
      for (int64_t e = 0; e < count; ++e) {
        const auto seed = static_cast<uint64_t>(10 * e);
        matrices.emplace_back(of.dtype, ffn, of.width, seed + 2, 0, of.scales);
        matrices.emplace_back(of.dtype, ffn, of.width, seed + 3, 0, of.scales);
        matrices.emplace_back(of.dtype, of.width, ffn, seed + 4, 0, of.scales);
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

  std::vector<float> results_of(Layer& layer, kernels::Backend& backend) {
    calls_ = 0;
    device::Stream stream(1);
    backend.experts(layer.args, stream);
    return layer.y.values();
  }
  /// Compares with the reference and returns how many grouped products there were.
  int calls_of(const Case& of, kernels::Backend& backend) {
    Layer layer(of);
    const std::vector<float> found = results_of(layer, backend);
    kernels::reference::experts(layer.args);
    const double size = static_cast<double>(of.width) * std::sqrt(static_cast<double>(ffn * k));
    // x, gates, activations and products are rounded to bf16.
    EXPECT_TRUE(all_close(found, layer.y.values(), 8 * 0x1p-8 * size, 4 * 0x1p-8))
        << of.rows << " rows of " << name_of(of.dtype);
    return calls_;
  }
  /// Compares with the same computed in doubles by the rules of quantize_rows, and returns how many
  /// grouped products there were.
  int calls_in_fp8(const Case& of, kernels::Backend& backend) {
    Layer layer(of);
    const std::vector<float> found = results_of(layer, backend);
    std::vector<float> expected(found.size());
    for (int64_t row = 0; row < of.rows; ++row)
      for (int64_t j = 0; j < k; ++j)
        add_in_fp8(layer, of, row, j, expected.data() + row * of.width);
    // Products of gate, up and down are rounded to bf16, and an activation that falls to the other side
    // of a code's border is off by 2⁻³ of it.
    const double size = static_cast<double>(of.width) * std::sqrt(static_cast<double>(ffn * k));
    EXPECT_TRUE(all_close(found, expected, 4 * 0x1p-8 * size, 4 * 0x1p-8)) << of.rows << " rows";
    return calls_;
  }
  int calls_of(const Case& of) { return calls_of(of, *backend_); }

  /// x as codes stand for it, scaled by row.
  static std::vector<double> in_codes(const std::vector<double>& x) {
    double largest = 0;
    for (const double value : x) largest = std::max(largest, std::abs(value));
    const float scale = static_cast<float>(largest) / max_fp8;
    std::vector<double> rounded;
    for (const double value : x) {
      uint8_t code;
      store_from_float(&code, DType::fp8, 0, static_cast<float>(value) * (1.0f / scale));
      rounded.push_back(double{load_as_float(&code, DType::fp8, 0)} * scale);
    }
    return rounded;
  }
  static double in_bf16(double value) {
    uint16_t bits;
    store_from_float(&bits, DType::bf16, 0, static_cast<float>(value));
    return load_as_float(&bits, DType::bf16, 0);
  }
  static double product(const TensorView& weight, const TensorView& scales, const TensorView& bias,
                        int64_t row, const std::vector<double>& x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      sum += x[i] * load_as_float(weight.row(row), weight.dtype(), static_cast<int64_t>(i));
    return sum * scales.as<const float>()[row] +
           (bias ? load_as_float(bias.data(), bias.dtype(), row) : 0);
  }
  /// Of silu.
  static void add_in_fp8(Layer& layer, const Case& of, int64_t row, int64_t j, float* y) {
    const Expert& expert = layer.experts.at(layer.chosen.at(row * k + j));
    const double weight = layer.weights.at(row * k + j);
    const bool of_inputs = of.weighed == kernels::Weighed::inputs;
    std::vector<double> x, activated;
    for (int64_t i = 0; i < of.width; ++i)
      x.push_back(in_bf16(load_as_float(layer.args.x.row(row), DType::fp32, i)));
    x = in_codes(x);
    if (of_inputs)
      for (double& value : x) value *= weight;
    for (int64_t i = 0; i < ffn; ++i) {
      const double gate = in_bf16(product(expert.gate, expert.gate_scales, expert.gate_bias, i, x));
      const double up = product(expert.up, expert.up_scales, expert.up_bias, i, x);
      activated.push_back(in_bf16(gate / (1 + std::exp(-gate)) * up));
    }
    activated = in_codes(activated);
    for (int64_t o = 0; o < of.width; ++o)
      y[o] += static_cast<float>(
          (of_inputs ? 1 : weight) *
          in_bf16(product(expert.down, expert.down_scales, expert.down_bias, o, activated)));
  }

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

TEST_F(ExpertsByLibrary, OfModelDtypeFp8MultiplyCodesOfX) {
  Case of{40, DType::fp8};
  of.scales = QuantizedMatrix::Fp8Scales::rows;
  EXPECT_EQ(calls_in_fp8(of, *backend_), 3) << "16 rows each, as of bf16";
  of.rows = 333;
  EXPECT_EQ(calls_in_fp8(of, *backend_), 3);
  of.weighed = kernels::Weighed::inputs;
  EXPECT_EQ(calls_in_fp8(of, *backend_), 3);
}

TEST_F(ExpertsByLibrary, OfModelDtypeFp8AreMultipliedAsStoredOnesWhereCodesOfXAreNot) {
  Case of{39, DType::fp8};
  of.scales = QuantizedMatrix::Fp8Scales::rows;
  EXPECT_EQ(calls_of(of), 0) << "fewer than 16 rows each";
  of.rows = 320;
  of.width = 40;
  EXPECT_EQ(calls_of(of), 0) << "rows of 40 bytes";
  of.width = hidden;
  of.row_invariant = RowInvariant::yes;
  EXPECT_EQ(calls_of(of), 0);
  of.row_invariant = RowInvariant::no;
  const auto widens =
      make_emulated_backend_of_groups(*host_, {.matmul = make_plain_grouped_matmul(calls_),
                                               .why_no_fp8 = "switched off",
                                               .is_checked_at_start = false});
  EXPECT_EQ(calls_of(of, *widens), 3) << "widened, within the rounding of bf16";
  of.rows = 319;
  EXPECT_EQ(calls_of(of, *widens), 0);
}

std::string complaint_about(double fp8_factor) {
  const auto host = device::make_host_device(1);
  int calls = 0;
  try {
    make_emulated_backend_of_groups(*host,
                                    {.matmul = make_plain_grouped_matmul(calls, fp8_factor)});
  } catch (const SystemError& error) {
    return error.what();
  }
  EXPECT_EQ(calls, 3);
  return "";
}

TEST(Fp8Experts, AreCheckedAtTheStart) {
  EXPECT_EQ(complaint_about(1), "");
  const std::string words = complaint_about(1.125);
  EXPECT_NE(words.find("plain loops"), std::string::npos) << words;
  EXPECT_NE(words.find("results differ by"), std::string::npos) << words;
  EXPECT_NE(words.find("PECIA_CUDA_FP8_EXPERTS=0"), std::string::npos) << words;
  EXPECT_NE(complaint_about(NAN), "");
}

TEST_F(ExpertsByLibrary, AreNoneWhereBitsOfRowsStayTheSame) {
  EXPECT_EQ(calls_of({50, DType::bf16, Activation::silu, RowInvariant::yes}), 0);
}

TEST_F(ExpertsByLibrary, AreNoneWhoseRowsDoNotLieAsItTakesThem) {
  EXPECT_EQ(calls_of({50, DType::bf16, Activation::silu, RowInvariant::no, 36}), 0);
}

TEST_F(ExpertsByLibrary, AreNamedByTheBackend) {
  EXPECT_EQ(backend_->expert_library(), "plain loops; fp8 by fp8");
  EXPECT_EQ(make_emulated_backend_of_groups(*host_, {.matmul = make_plain_grouped_matmul(calls_),
                                                     .why_no_fp8 = "switched off",
                                                     .is_checked_at_start = false})
                ->expert_library(),
            "plain loops; fp8 widened: switched off");
  EXPECT_EQ(make_emulated_backend(*host_)->expert_library(), "none: the emulator was given none");
}

}  // namespace
}  // namespace pecia::test
