// SPDX-License-Identifier: Apache-2.0
/// Gate, up and their activation as one op, where a backend has it.

#include <cmath>

#include "tests/kernels/quantized_matrix.hpp"

namespace pecia::test {
namespace {

using kernels::Activation;
using kernels::GatedLinearArgs;

constexpr Activation all_activations[] = {Activation::silu, Activation::gelu_tanh,
                                          Activation::clamped};

struct GatedProblem {
  GatedProblem(const Size& size, DType weights, DType type_of_x, int64_t gap)
      : x(Tensor::random({size.rows, size.in}, type_of_x, 1, gap)),
        gate(weights, size.out, size.in, 2, gap),
        up(weights, size.out, size.in, 3, gap),
        gate_bias(Tensor::random({size.out}, DType::bf16, 4)),
        up_bias(Tensor::random({size.out}, DType::fp32, 5)),
        out({size.rows, size.out}, DType::bf16, std::vector<float>(size.rows * size.out, 7), gap) {}

  GatedLinearArgs args(Activation activation = Activation::silu, bool with_bias = true) {
    return {.x = x.view(),
            .gate = gate.view(),
            .up = up.view(),
            .out = out.view(),
            .activation = activation,
            .gate_scales = gate.scales(),
            .up_scales = up.scales(),
            .gate_bias = with_bias ? gate_bias.view() : TensorView(),
            .up_bias = with_bias ? up_bias.view() : TensorView(),
            .gate_factor = gate.factor(),
            .up_factor = up.factor()};
  }

  /// By single ops of the reference, of x rounded as products round it.
  std::vector<float> wanted(const GatedLinearArgs& args) {
    Device oracle = make_device("reference");
    const int64_t rows = args.x.rows(), ffn = args.gate.rows();
    Tensor rounded({rows, args.x.size(1)}, DType::bf16, x.values());
    Tensor gates = Tensor::filled({rows, ffn}, 0), ups = gates;
    multiply(oracle, rounded.view(), args.gate, args.gate_scales, args.gate_bias, gates.view(),
             kernels::Accumulate::no, args.gate_factor);
    multiply(oracle, rounded.view(), args.up, args.up_scales, args.up_bias, ups.view(),
             kernels::Accumulate::no, args.up_factor);
    oracle.backend->gated_activation({gates.view(), ups.view(), gates.view(), args.activation},
                                     oracle.stream);
    return gates.values();
  }

  Tensor x;
  QuantizedMatrix gate, up;
  Tensor gate_bias, up_bias, out;
};

/// Body over (device, type of the weights).
class GatedLinear : public OpTest {
 protected:
  bool taken(const GatedLinearArgs& args) {
    if (device_.backend->takes_gated_linear(args)) return true;
    EXPECT_THROW(device_.backend->gated_linear(args, device_.stream), Unsupported);
    return false;
  }
  bool is_of_a_gpu() const { return device_.backend->name() == "cuda"; }
};
const DType of_gates[] = {DType::bf16,  DType::int8,  DType::int4,
                          DType::mxfp4, DType::nvfp4, DType::fp8};
PECIA_INSTANTIATE_OP_TEST_OF(GatedLinear, of_gates);

TEST_P(GatedLinear, MultipliesBothAndGatesOneByTheOther) {
  if (dtype_ != DType::bf16) return;
  Tensor x({2, 3}, DType::bf16, {1, 2, -1, 64, 0, 0});
  Tensor gate({2, 3}, DType::bf16, {1, 0, 1, 2, 1, 0}), up({2, 3}, DType::bf16, {3, 1, 0, 0, 1, 4});
  Tensor bias({2}, DType::fp32, {0, -4});
  Tensor out({2, 2}, DType::bf16, {7, 7, 7, 7});
  GatedLinearArgs args{.x = x.view(), .gate = gate.view(), .up = up.view(), .out = out.view()};
  args.gate_bias = bias.view();
  if (!taken(args)) return;
  device_.backend->gated_linear(args, device_.stream);
  // The gates are 0, 0; 64, 124. The ups are 5, −2; 192, 0.
  EXPECT_EQ(out.values(), (std::vector<float>{0, 0, 64 * 192, 0}));
  args.activation = Activation::clamped;
  args.up_bias = bias.view();  // the ups are 5, −6; 192, −4
  device_.backend->gated_linear(args, device_.stream);
  const auto seven = static_cast<float>(7 / (1 + std::exp(-1.702 * 7)));
  EXPECT_TRUE(all_close(out.values(), std::vector<float>{0, 0, 8 * seven, -3 * seven}, 0, 0x1p-8));
}

/// Around tiles of 16 rows and of 8 and 16 columns, stretches of 32, 64 and 128 numbers, and two tiles
/// for 2048 columns and more.
TEST_P(GatedLinear, AgreesWithTheSingleOpsOfTheReference) {
  int64_t compared = 0;
  for (const Size& size : {Size{0, 24, 64},
                           {1, 17, 130},
                           {3, 2056, 96},
                           {5, 40, 257},
                           {16, 33, 1160},
                           {17, 24, 128},
                           {64, 9, 300},
                           {4, 3, 0}})
    for (const Activation activation : all_activations)
      for (const auto& [gap, with_bias, in_bf16] :
           {std::tuple{0, true, false}, {1, false, true}, {16, true, true}}) {
        GatedProblem problem(size, dtype_, in_bf16 ? DType::bf16 : DType::fp32, gap);
        const GatedLinearArgs args = problem.args(activation, with_bias);
        if (!taken(args)) continue;
        ++compared;
        device_.backend->gated_linear(args, device_.stream);
        // Products are off by their sums' rounding, gate and up are of size √in, and the result is
        // rounded once.
        const double off = 8 * sum_tolerance(size.in) * std::sqrt(static_cast<double>(size.in + 1));
        EXPECT_TRUE(all_close(problem.out.values(), problem.wanted(args), off, 0x1p-8))
            << size.rows << " rows, " << size.out << " × " << size.in << ", gap " << gap;
        EXPECT_TRUE(problem.out.gaps_intact());
      }
  EXPECT_EQ(compared, !is_of_a_gpu() ? 0 : dtype_ == DType::bf16 ? 6 * 9 : 8 * 9);
}

TEST_P(GatedLinear, OfARowDoesNotDependOnOtherRows) {
  GatedProblem all({16, 40, 160}, dtype_, DType::fp32, 0);
  if (!taken(all.args())) return;
  device_.backend->gated_linear(all.args(), device_.stream);
  GatedLinearArgs last = all.args();
  Tensor out({3, 40}, DType::bf16, std::vector<float>(3 * 40, 7));
  last.x = last.x.slice_rows(13, 3), last.out = out.view();
  device_.backend->gated_linear(last, device_.stream);
  const auto whole = all.out.values();
  EXPECT_EQ(out.values(), std::vector<float>(whole.begin() + 13 * 40, whole.end()));
}

/// Weights of fp8 with a scale for each row multiply up to 16 rows of x as they are.
TEST_P(GatedLinear, TakesFewRowsOfFp8ThatRoundsMore) {
  if (dtype_ != DType::fp8) return;
  for (const int64_t rows : {1, 16, 17}) {
    GatedProblem problem({rows, 40, 160}, dtype_, DType::bf16, 0);
    GatedLinearArgs args = problem.args();
    Tensor scales = Tensor::random({40}, DType::fp32, 6);
    args.gate_scales = args.up_scales = scales.view();
    EXPECT_EQ(device_.backend->takes_gated_linear(args), is_of_a_gpu() && rows <= 16);
    if (!taken(args)) continue;
    device_.backend->gated_linear(args, device_.stream);
    GatedLinearArgs stored = args;
    stored.gate_scales = stored.up_scales = scales.view().reshape({40, 1});
    const auto wanted = problem.wanted(stored);
    const double off = 8 * sum_tolerance(160) * 118 * 118 * 160;
    EXPECT_TRUE(all_close(problem.out.values(), wanted, off, 0x1p-8)) << rows << " rows";
  }
}

TEST_P(GatedLinear, LeavesToSingleOpsWhatItDoesNotTake) {
  const auto refused = [&](const Size& size, const auto& change) {
    GatedProblem problem(size, dtype_, DType::bf16, 0);
    GatedLinearArgs args = problem.args();
    change(args);
    EXPECT_FALSE(device_.backend->takes_gated_linear(args));
    EXPECT_THROW(device_.backend->gated_linear(args, device_.stream), Unsupported);
    EXPECT_EQ(problem.out.values(), std::vector<float>(size.rows * size.out, 7));
  };
  const int64_t most = dtype_ == DType::bf16 ? 16 : 64;
  refused({most + 1, 8, 128}, [](auto&) {});
  Tensor wide = Tensor::filled({1, 8}, 9);
  refused({1, 8, 128}, [&](auto& args) { args.out = wide.view(); });
  QuantizedMatrix other(dtype_ == DType::int8 ? DType::bf16 : DType::int8, 8, 128, 1);
  refused({1, 8, 128}, [&](auto& args) {
    args.up = other.view(), args.up_scales = other.scales(), args.up_factor = 1;
  });
}

TEST_P(GatedLinear, RefusesWhatContradictsItself) {
  if (!is_of_a_gpu()) GTEST_SKIP() << "the backend has single ops only";
  const auto refused = [&](const auto& change) {
    GatedProblem problem({2, 8, 300}, dtype_, DType::bf16, 0);
    GatedLinearArgs args = problem.args();
    change(args);
    EXPECT_THROW(device_.backend->gated_linear(args, device_.stream), InvalidArgument);
    EXPECT_EQ(problem.out.values(), std::vector<float>(2 * 8, 7));
  };
  refused([](auto& args) { args.up = args.up.slice_rows(0, 7); });
  refused([](auto& args) { args.out = args.out.slice_columns(0, 7); });
  refused([](auto& args) { args.x = args.x.slice_columns(0, 100); });
  refused([](auto& args) { args.up_bias = args.up_bias.slice_rows(0, 7); });
}

}  // namespace
}  // namespace pecia::test
