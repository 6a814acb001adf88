// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Expert;

/// Experts with random matrices, and the rows that choose them.
struct Layer {
  Layer(int64_t rows, int64_t hidden, int64_t ffn, int64_t count, int64_t taken, DType stored)
      : k(taken), x(Tensor::random({rows, hidden}, DType::fp32, 1, 3)) {
    for (int64_t e = 0; e < count; ++e) {
      const auto seed = static_cast<uint64_t>(10 * e);
      gates.push_back(Tensor::random({ffn, hidden}, stored, seed + 2));
      ups.push_back(Tensor::random({ffn, hidden}, stored, seed + 3));
      downs.push_back(Tensor::random({hidden, ffn}, stored, seed + 4, 8));
    }
    // Different experts for each row, of which the last is chosen by none.
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t j = 0; j < k; ++j) {
        chosen.push_back(static_cast<int32_t>((row * row + j) % std::max<int64_t>(1, count - 1)));
        weights.push_back(0.25f + 0.5f * static_cast<float>((row + j) % 3));
      }
  }

  std::vector<Expert> experts() {
    std::vector<Expert> all;
    for (size_t e = 0; e < gates.size(); ++e)
      all.push_back({gates[e].view(), ups[e].view(), downs[e].view()});
    return all;
  }

  void run(Device& device, const TensorView& y,
           kernels::RowInvariant row_invariant = kernels::RowInvariant::no,
           kernels::Weighed weighed = kernels::Weighed::outputs) {
    const std::vector<Expert> all = experts();
    const int64_t rows = y.rows();
    device.backend->experts({.x = x.view().slice_rows(0, rows),
                             .chosen = TensorView(chosen.data(), DType::int32, {rows, k}),
                             .weights = TensorView(weights.data(), DType::fp32, {rows, k}),
                             .experts = all,
                             .y = y,
                             .weighed = weighed,
                             .row_invariant = row_invariant},
                            device.stream);
  }

  int64_t k;
  Tensor x;
  std::vector<Tensor> gates, ups, downs;
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

class Experts : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Backends, Experts,
                         testing::Combine(testing::ValuesIn(every_device_of_experts()),
                                          testing::ValuesIn(stored_types)),
                         name_of_param);

TEST_P(Experts, AddWeightedResultsOfTheChosenOnes) {
  // Expert 0 gives silu(x) · 2x, expert 1 gives 10 · silu(2x) · x, expert 2 is chosen by none.
  Tensor one({1, 1}, dtype_, {1}), two({1, 1}, dtype_, {2}), ten({1, 1}, dtype_, {10});
  Tensor nan({1, 1}, dtype_, {std::nanf("")});
  const std::vector<Expert> experts = {{one.view(), two.view(), one.view()},
                                       {two.view(), one.view(), ten.view()},
                                       {nan.view(), nan.view(), nan.view()}};
  Tensor x({3, 1}, DType::fp32, {1, 2, -1}), y = Tensor::filled({3, 1}, 7, 2);
  std::vector<int32_t> chosen = {0, 1, 1, 0, 1, 0};
  std::vector<float> weights = {1, 0, 0.5f, 0.25f, 0, 2};
  device_.backend->experts({.x = x.view(),
                            .chosen = TensorView(chosen.data(), DType::int32, {3, 2}),
                            .weights = TensorView(weights.data(), DType::fp32, {3, 2}),
                            .experts = experts,
                            .y = y.view()},
                           device_.stream);
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  const std::vector<float> expected = {
      static_cast<float>(silu(1) * 2),
      static_cast<float>(0.5 * 10 * silu(4) * 2 + 0.25 * silu(2) * 4),
      static_cast<float>(2 * silu(-1) * -2)};
  // What is multiplied may be rounded to the weights' type.
  EXPECT_TRUE(all_close(y.values(), expected, 1e-6, dtype_ == DType::fp32 ? 1e-6 : 0x1p-7));
  EXPECT_TRUE(y.gaps_intact());
}

TEST_P(Experts, WeighTheirInputsWhereAsked) {
  // f(x) = silu(x) · 2x of ½ · 2 and of ¼ · (−4).
  Tensor one({1, 1}, dtype_, {1}), two({1, 1}, dtype_, {2});
  const std::vector<Expert> experts = {{one.view(), two.view(), one.view()}};
  Tensor x({2, 1}, DType::fp32, {2, -4}), y = Tensor::filled({2, 1}, 7);
  std::vector<int32_t> chosen = {0, 0};
  std::vector<float> weights = {0.5f, 0.25f};
  kernels::ExpertsArgs args{.x = x.view(),
                            .chosen = TensorView(chosen.data(), DType::int32, {2, 1}),
                            .weights = TensorView(weights.data(), DType::fp32, {2, 1}),
                            .experts = experts,
                            .y = y.view(),
                            .weighed = kernels::Weighed::inputs};
  device_.backend->experts(args, device_.stream);
  const auto f = [](double g) { return static_cast<float>(g / (1 + std::exp(-g)) * 2 * g); };
  EXPECT_TRUE(all_close(y.values(), std::vector<float>{f(1), f(-1)}, 1e-6,
                        dtype_ == DType::fp32 ? 1e-6 : 0x1p-7));
  std::vector<Expert> biased = experts;
  biased[0].up_bias = one.view().reshape({1});
  args.experts = biased;
  EXPECT_THROW(device_.backend->experts(args, device_.stream), InvalidArgument);
}

TEST_P(Experts, AddTheirBiasesBeforeTheWeight) {
  // f(x) = 3 + silu(x + 1) · (x − 1), with weight ½.
  Tensor one({1, 1}, dtype_, {1}), minus({1}, dtype_, {-1}), plus({1}, DType::fp32, {1});
  Tensor three({1}, dtype_, {3});
  const std::vector<Expert> experts = {{.gate = one.view(),
                                        .up = one.view(),
                                        .down = one.view(),
                                        .gate_bias = plus.view(),
                                        .up_bias = minus.view(),
                                        .down_bias = three.view()}};
  Tensor x({2, 1}, DType::fp32, {1, 3}), y = Tensor::filled({2, 1}, 7);
  std::vector<int32_t> chosen = {0, 0};
  std::vector<float> weights = {0.5f, 0.5f};
  device_.backend->experts({.x = x.view(),
                            .chosen = TensorView(chosen.data(), DType::int32, {2, 1}),
                            .weights = TensorView(weights.data(), DType::fp32, {2, 1}),
                            .experts = experts,
                            .y = y.view()},
                           device_.stream);
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  EXPECT_TRUE(all_close(y.values(),
                        std::vector<float>{1.5f, static_cast<float>(1.5 + 0.5 * silu(4) * 2)}, 0,
                        dtype_ == DType::fp32 ? 1e-6 : 0x1p-7));
}

TEST_P(Experts, AgreeWithTheReference) {
  Device oracle = make_device("reference");
  struct Shape {
    int64_t rows, hidden, ffn, count, k;
  };
  for (const Shape& shape : {Shape{0, 8, 8, 2, 1}, Shape{1, 64, 48, 9, 3}, Shape{7, 33, 17, 9, 2},
                             Shape{90, 40, 24, 4, 2}, Shape{150, 16, 8, 2, 1}}) {
    Layer layer(shape.rows, shape.hidden, shape.ffn, shape.count, shape.k, dtype_);
    Tensor expected = Tensor::filled({shape.rows, shape.hidden}, 0);
    Tensor y = Tensor::filled({shape.rows, shape.hidden}, 5, 4);
    layer.run(oracle, expected.view());
    layer.run(device_, y.view());
    // Products of standard normal numbers: gate and up are of size √hidden, their product of size
    // hidden, and a sum of ffn of these, k times.
    const double size =
        static_cast<double>(shape.hidden) * std::sqrt(static_cast<double>(shape.ffn * shape.k));
    const bool narrow =
        device_.rounding(dtype_) > 0 || device_.backend->operand_type(dtype_) != DType::fp32;
    const double rounding = narrow ? 0x1p-8 : sum_tolerance(shape.hidden + shape.ffn);
    EXPECT_TRUE(all_close(y.values(), expected.values(), 8 * rounding * size, 4 * rounding))
        << shape.rows << " rows, " << shape.hidden << " × " << shape.ffn;
    EXPECT_TRUE(y.gaps_intact());
    constexpr auto no = kernels::RowInvariant::no;
    layer.run(oracle, expected.view(), no, kernels::Weighed::inputs);
    layer.run(device_, y.view(), no, kernels::Weighed::inputs);
    EXPECT_TRUE(all_close(y.values(), expected.values(), 8 * rounding * size, 4 * rounding))
        << shape.rows << " rows with weighed inputs";
  }
}

TEST_P(Experts, OfARowDoNotDependOnOtherRowsWhereAsked) {
  Layer layer(60, 24, 16, 5, 2, dtype_);
  constexpr auto yes = kernels::RowInvariant::yes;
  Tensor all = Tensor::filled({60, 24}, 0);
  layer.run(device_, all.view(), yes);
  for (const int64_t rows : {1, 2, 33}) {
    Tensor some = Tensor::filled({rows, 24}, 0);
    layer.run(device_, some.view(), yes);
    const auto found = some.values(), wanted = all.values();
    for (int64_t i = 0; i < rows * 24; ++i) ASSERT_EQ(found[i], wanted[i]) << rows << " rows";
  }
}

TEST_P(Experts, OfOneRankAndOfTheOthersAddUpToAll) {
  constexpr int64_t hidden = 16, count = 7, k = 3;
  for (const int64_t rows : {1, 30}) {
    Layer layer(rows, hidden, 8, count, k, dtype_);
    Tensor whole = Tensor::filled({rows, hidden}, 0);
    layer.run(device_, whole.view());
    std::vector<float> sum(rows * hidden);
    const std::vector<Expert> all = layer.experts();
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 2}, {2, 3}, {3, 7}}) {
      Tensor part = Tensor::filled({rows, hidden}, 5, 2);
      device_.backend->experts({.x = layer.x.view(),
                                .chosen = TensorView(layer.chosen.data(), DType::int32, {rows, k}),
                                .weights = TensorView(layer.weights.data(), DType::fp32, {rows, k}),
                                .experts = std::span(all).subspan(begin, end - begin),
                                .y = part.view(),
                                .first_expert = begin,
                                .count = count},
                               device_.stream);
      EXPECT_TRUE(part.gaps_intact());
      const std::vector<float> values = part.values();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    // Only sums of k terms of size √8 · hidden are in another order.
    EXPECT_TRUE(all_close(sum, whole.values(), 64 * sum_tolerance(k) * hidden, 0));
  }
}

TEST_P(Experts, ThatAreNotAmongAllAreRefused) {
  Layer layer(2, 8, 4, 2, 1, dtype_);
  Tensor y = Tensor::filled({2, 8}, 0);
  const std::vector<Expert> all = layer.experts();
  const auto run = [&](std::span<const Expert> experts, int64_t first, int64_t count) {
    device_.backend->experts({.x = layer.x.view(),
                              .chosen = TensorView(layer.chosen.data(), DType::int32, {2, 1}),
                              .weights = TensorView(layer.weights.data(), DType::fp32, {2, 1}),
                              .experts = experts,
                              .y = y.view(),
                              .first_expert = first,
                              .count = count},
                             device_.stream);
  };
  EXPECT_THROW(run(all, 1, 2), InvalidArgument);
  EXPECT_THROW(run({}, 0, 2), InvalidArgument);
}

TEST_P(Experts, AreRefusedWithMatricesThatDoNotFit) {
  Layer layer(2, 8, 4, 2, 1, dtype_);
  Tensor y = Tensor::filled({2, 8}, 0), other = Tensor::filled({8, 5}, 1);
  layer.downs[1] = other;
  EXPECT_THROW(layer.run(device_, y.view()), InvalidArgument);
  Layer few(2, 8, 4, 2, 2, dtype_);
  few.gates.pop_back();
  EXPECT_THROW(few.run(device_, y.view()), InvalidArgument);
}

TEST(ExpertWork, IsTheShareOfTheExpertsThatAreHere) {
  const void* const nowhere = nullptr;
  kernels::ExpertsArgs args{.x = TensorView(nowhere, DType::fp32, {1000, 4}),
                            .chosen = TensorView(nowhere, DType::int32, {1000, 8}),
                            .weights = {},
                            .experts = {},
                            .y = {},
                            .count = 128};
  EXPECT_DOUBLE_EQ(work_of(args, 32).pairs, 2000);
  EXPECT_NEAR(work_of(args, 32).touched, 32, 1e-6);
  args.pairs = 2;  // those of one row, if it chose evenly
  EXPECT_DOUBLE_EQ(work_of(args, 32).pairs, 2);
  EXPECT_DOUBLE_EQ(work_of(args, 32).touched, 2);
}

TEST(TouchedExperts, AreKForOneRowAndAllForMany) {
  EXPECT_DOUBLE_EQ(kernels::touched_experts(0, 8, 128), 0);
  EXPECT_DOUBLE_EQ(kernels::touched_experts(1, 8, 128), 8);
  // The second of two rows meets each of its 8 experts anew with probability 120/128.
  EXPECT_DOUBLE_EQ(kernels::touched_experts(2, 8, 128), 8 + 8 * 120.0 / 128);
  EXPECT_DOUBLE_EQ(kernels::touched_experts(5, 4, 4), 4);
  EXPECT_NEAR(kernels::touched_experts(2000, 8, 128), 128, 1e-6);
}

}  // namespace
}  // namespace pecia::test
