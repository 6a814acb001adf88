// SPDX-License-Identifier: Apache-2.0
/// Experts whose matrices are codes, on every backend beside the reference.

#include <cmath>

#include "tests/kernels/quantized_matrix.hpp"

namespace pecia::test {
namespace {

using kernels::Expert;

struct CodedLayer {
  using Fp8Scales = QuantizedMatrix::Fp8Scales;
  CodedLayer(int64_t rows, int64_t hidden, int64_t ffn, int64_t count, int64_t taken, DType gate,
             DType down, Fp8Scales scales = Fp8Scales::blocks)
      : k(taken), x(Tensor::random({rows, hidden}, DType::fp32, 1, 3)) {
    for (int64_t e = 0; e < count; ++e) {
      const auto seed = static_cast<uint64_t>(10 * e);
      matrices.emplace_back(gate, ffn, hidden, seed + 2, 0, scales);
      matrices.emplace_back(gate, ffn, hidden, seed + 3, 0, scales);
      matrices.emplace_back(down, hidden, ffn, seed + 4, 0, scales);
      biases.push_back(Tensor::random({ffn}, DType::bf16, seed + 5));
      biases.push_back(Tensor::random({hidden}, DType::fp32, seed + 6));
    }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t j = 0; j < k; ++j) {  // the last is chosen by none, the first by most
        const int64_t expert = j == 0 && row % 4 != 0 ? 0 : 1 + (row + j) % (count - 2);
        chosen.push_back(static_cast<int32_t>(expert));
        weights.push_back(0.25f + 0.5f * static_cast<float>((row + j) % 3));
      }
  }
  /// By the experts [first, first + here).
  std::vector<float> run(Device& device, int64_t rows, int64_t first, int64_t here,
                         kernels::RowInvariant row_invariant = kernels::RowInvariant::no) {
    std::vector<Expert> experts;
    const int64_t count = std::ssize(matrices) / 3;
    for (int64_t e = first; e < first + here; ++e) {
      QuantizedMatrix &gate = matrices[3 * e], &up = matrices[3 * e + 1],
                      &down = matrices[3 * e + 2];
      experts.push_back({.gate = gate.view(),
                         .up = up.view(),
                         .down = down.view(),
                         .gate_scales = gate.scales(),
                         .up_scales = up.scales(),
                         .down_scales = down.scales(),
                         .gate_bias = biases[2 * e].view(),
                         .up_bias = {},
                         .down_bias = biases[2 * e + 1].view(),
                         .gate_factor = gate.factor(),
                         .up_factor = up.factor(),
                         .down_factor = down.factor()});
    }
    Tensor y = Tensor::filled({rows, x.view().size(1)}, 7, 4);
    device.backend->experts({.x = x.view().slice_rows(0, rows),
                             .chosen = TensorView(chosen.data(), DType::int32, {rows, k}),
                             .weights = TensorView(weights.data(), DType::fp32, {rows, k}),
                             .experts = experts,
                             .y = y.view(),
                             .row_invariant = row_invariant,
                             .first_expert = first,
                             .count = count},
                            device.stream);
    EXPECT_TRUE(y.gaps_intact());
    return y.values();
  }

  int64_t k;
  Tensor x;
  std::vector<QuantizedMatrix> matrices;
  std::vector<Tensor> biases;
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

class CodedExperts : public OpTest {
 protected:
  /// CPUs have no products with codes of fp8.
  bool refused() {
    if (dtype_ != DType::fp8 || device_.backend->name() != "cpu") return false;
    CodedLayer layer(1, 16, 16, 3, 1, dtype_, dtype_);
    EXPECT_THROW(layer.run(device_, 1, 0, 3), Unsupported);
    return true;
  }
  /// Products of numbers of deviation near 1: gate and up are of size √hidden, their product of size
  /// hidden, and a sum of ffn of these, k times. What is multiplied may be rounded to bf16. Of
  /// thousands of sums the largest are off by a part of their own size.
  static constexpr double of_its_size = 4 * 0x1p-8;
  static double tolerance(int64_t hidden, int64_t ffn, int64_t k) {
    return 8 * 0x1p-8 * static_cast<double>(hidden) * std::sqrt(static_cast<double>(ffn * k));
  }
};
const DType of_experts[] = {DType::bf16,  DType::int8,  DType::int4,
                            DType::mxfp4, DType::nvfp4, DType::fp8};
INSTANTIATE_TEST_SUITE_P(Backends, CodedExperts,
                         testing::Combine(testing::ValuesIn(every_device_of_experts()),
                                          testing::ValuesIn(of_experts)),
                         name_of_param);

TEST_P(CodedExperts, AgreeWithTheReference) {
  if (std::get<0>(GetParam()) == "reference") GTEST_SKIP() << "the oracle itself";
  if (refused()) return;
  Device oracle = make_device("reference");
  struct Shape {
    int64_t rows, hidden, ffn, count, k;
  };
  for (const Shape& shape : {Shape{0, 32, 32, 3, 1}, Shape{1, 160, 96, 5, 2},
                             Shape{45, 96, 160, 4, 2}, Shape{20, 40, 33, 6, 1},
                             // more than a tile of rows and of columns on GPUs, with a rest of both
                             Shape{210, 296, 136, 4, 2}, Shape{60, 72, 200, 4, 1},
                             // more of the depth than the warps of a block read ahead
                             Shape{2, 1640, 40, 3, 1}, Shape{2, 40, 1640, 3, 1},
                             // rows for which codes are widened
                             Shape{400, 96, 64, 3, 1}})
    for (const DType down : {dtype_, DType::bf16, DType::int8}) {
      CodedLayer layer(shape.rows, shape.hidden, shape.ffn, shape.count, shape.k, dtype_, down);
      const auto wanted = layer.run(oracle, shape.rows, 0, shape.count);
      EXPECT_TRUE(all_close(layer.run(device_, shape.rows, 0, shape.count), wanted,
                            tolerance(shape.hidden, shape.ffn, shape.k), of_its_size))
          << shape.rows << " rows, " << shape.hidden << " × " << shape.ffn << ", down "
          << name_of(down);
    }
}

/// The root mean square of what differs, as a share of that of `exact`.
double relative_difference(const std::vector<float>& found, const std::vector<float>& exact) {
  double differences = 0, squares = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double difference = double{found.at(i)} - exact[i];
    differences += difference * difference;
    squares += double{exact[i]} * exact[i];
  }
  return std::sqrt(differences / squares);
}

/// Those of model.dtype: fp8. x is rounded to fp8 by a library alone, for many rows of an expert.
TEST_P(CodedExperts, OfFp8WithAScaleForEachRowAgreeWithTheReference) {
  if (dtype_ != DType::fp8 || refused()) return;
  if (std::get<0>(GetParam()) == "reference") GTEST_SKIP() << "the oracle itself";
  Device oracle = make_device("reference");
  for (const int64_t rows : {3, 60, 400})
    for (const DType down : {DType::fp8, DType::bf16}) {
      constexpr int64_t hidden = 96, ffn = 64, count = 3;
      CodedLayer layer(rows, hidden, ffn, count, 1, dtype_, down, CodedLayer::Fp8Scales::rows);
      const auto found = layer.run(device_, rows, 0, count),
                 exact = layer.run(oracle, rows, 0, count);
      const bool rounds_x = down == DType::fp8 && rows / count >= 16 &&
                            device_.backend->expert_library().ends_with("fp8 by fp8");
      if (rounds_x)  // x and activations, each by 2.6 % on average (root mean square)
        EXPECT_LT(relative_difference(found, exact), 0.08) << rows << " rows";
      else
        EXPECT_TRUE(all_close(found, exact, tolerance(hidden, ffn, 1), of_its_size))
            << rows << " rows";
    }
}

TEST_P(CodedExperts, OfOneRankAndOfTheOthersAddUpToAll) {
  if (refused()) return;
  constexpr int64_t rows = 21, hidden = 64, ffn = 32, count = 6, k = 3;
  CodedLayer layer(rows, hidden, ffn, count, k, dtype_, dtype_);
  const auto all = layer.run(device_, rows, 0, count);
  auto sum = layer.run(device_, rows, 0, 2);
  const auto others = layer.run(device_, rows, 2, count - 2);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += others[i];
  EXPECT_TRUE(all_close(sum, all, 0x1p-18 * tolerance(hidden, ffn, k), 0x1p-18));
}

TEST_P(CodedExperts, OfARowDoNotDependOnOtherRowsOnGpusWhereAsked) {
  if (device_.backend->name() != "cuda") GTEST_SKIP() << "CPUs refuse some codes then";
  constexpr auto yes = kernels::RowInvariant::yes;
  CodedLayer layer(50, 96, 64, 5, 2, dtype_, dtype_);
  const auto all = layer.run(device_, 50, 0, 5, yes);
  for (const int64_t rows : {1, 17, 33}) {
    const auto some = layer.run(device_, rows, 0, 5, yes);
    EXPECT_EQ(some, std::vector<float>(all.begin(), all.begin() + rows * 96)) << rows;
  }
}

}  // namespace
}  // namespace pecia::test
