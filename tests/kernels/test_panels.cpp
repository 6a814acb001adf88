// SPDX-License-Identifier: Apache-2.0
/// Products from panels against products from the matrices that they stand for.

#include <cstring>

#include "lib/base/device/buffer.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Accumulate;
using kernels::LinearArgs;
using kernels::RowInvariant;

class Panels : public testing::TestWithParam<std::string> {
 protected:
  Device plain_ = make_device(GetParam()), panelled_ = make_device(GetParam());

  /// Panels of the matrix, made in two parts, which the second backend uses from now on.
  void use_panels(const TensorView& matrix) {
    constexpr int64_t unit = kernels::PanelsArgs::panel_rows;
    kernels::Backend& backend = *panelled_.backend;
    const int64_t bytes = backend.panel_bytes(matrix), rows = matrix.rows();
    ASSERT_GE(bytes, matrix.elements() * size_of(DType::bf16));
    memory_.emplace_back(bytes + 1);
    auto* const panels = memory_.back().as<std::byte>();
    std::memset(panels, 0xff, bytes + 1);  // NaN, wherever nothing is written
    const int64_t middle = rows / 2 / unit * unit;
    backend.make_panels({matrix, panels, middle, rows}, panelled_.stream);
    backend.make_panels({matrix, panels, 0, middle}, panelled_.stream);
    EXPECT_EQ(panels[bytes], std::byte{0xff}) << "written past the end";
    backend.use_panels(matrix, panels);
  }

  /// The same product by both backends has the same bits.
  void expect_same(const LinearArgs& args, const std::string& what, int64_t gap = 3) {
    std::vector<float> found[2];
    for (const int i : {0, 1}) {
      Device& device = i == 0 ? plain_ : panelled_;
      Tensor y = Tensor::random({args.x.rows(), args.weight.rows()}, DType::fp32, 9, gap);
      LinearArgs own = args;
      own.y = y.view();
      device.backend->linear(own, device.stream);
      found[i] = y.values();
      EXPECT_TRUE(y.gaps_intact()) << what;
    }
    EXPECT_EQ(std::memcmp(found[0].data(), found[1].data(), found[0].size() * sizeof(float)), 0)
        << what;
  }

  std::vector<device::Buffer> memory_;
};

std::vector<std::string> devices_with_panels() {
  std::vector<std::string> devices;
  for (const std::string& name : every_device()) {
    Tensor matrix = Tensor::filled({1, 1}, 0);
    const TensorView bf16(matrix.view().data(), DType::bf16, {1, 1});
    if (make_device(name).backend->panel_bytes(bf16) > 0) devices.push_back(name);
  }
  return devices;
}
INSTANTIATE_TEST_SUITE_P(Devices, Panels, testing::ValuesIn(devices_with_panels()));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Panels);

TEST_P(Panels, HaveTheBitsOfTheMatrix) {
  for (const auto& [rows, out, in] : {std::array<int64_t, 3>{1, 64, 96},
                                      {2, 33, 130},
                                      {3, 31, 33},
                                      {8, 100, 640},
                                      {14, 32, 64},
                                      {15, 70, 1300},
                                      {33, 97, 250},
                                      {64, 40, 31},
                                      {70, 129, 1030},
                                      {130, 260, 2048},
                                      {20, 40, 8192}}) {
    Tensor x = Tensor::random({rows, in}, DType::fp32, 1, 1);
    Tensor matrix = Tensor::random({out, in}, DType::bf16, 2, in % 3);
    Tensor bias = Tensor::random({out}, DType::bf16, 3);
    use_panels(matrix.view());
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes})
      for (const bool with_bias : {false, true})
        for (const int splits : {1, 2, 8, 16}) {
          if (in % splits != 0) continue;
          expect_same({x.view(),
                       matrix.view(),
                       with_bias ? bias.view() : TensorView(),
                       {},
                       accumulate,
                       RowInvariant::yes,
                       splits},
                      fmt::format("{} rows, {} × {}, {} splits", rows, out, in, splits));
        }
  }
}

/// Blocks of 512 rows and a piece of one, in several pieces of the depth; results of 2 MiB and more,
/// which are written past the caches where rows begin on lines; and rows in three parts.
TEST_P(Panels, HaveTheBitsOfTheMatrixForManyRows) {
  for (const auto& [rows, out, in] :
       {std::array<int64_t, 3>{530, 40, 640}, {560, 1024, 32}, {1027, 520, 7}, {70, 40, 10304}}) {
    Tensor x = Tensor::random({rows, in}, DType::bf16, 1);
    Tensor matrix = Tensor::random({out, in}, DType::bf16, 2);
    Tensor bias = Tensor::random({out}, DType::fp32, 3);
    use_panels(matrix.view());
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes})
      for (const int64_t gap : {0, 3})
        expect_same({x.view(), matrix.view(), bias.view(), {}, accumulate, RowInvariant::yes},
                    fmt::format("{} rows, {} × {}, gap {}", rows, out, in, gap), gap);
  }
}

/// Rows that a backend has packed once serve later products, until they change.
TEST_P(Panels, MeetRowsAsTheyAre) {
  constexpr int64_t rows = 70, in = 64;
  Tensor x = Tensor::random({rows, in}, DType::fp32, 1),
         other = Tensor::random({rows, in}, DType::fp32, 2);
  Tensor first = Tensor::random({96, in}, DType::bf16, 3);
  Tensor second = Tensor::random({64, in}, DType::bf16, 4);
  Tensor without = Tensor::random({64, in}, DType::bf16, 5);
  use_panels(first.view());
  use_panels(second.view());
  const auto product = [&](Tensor& weight, kernels::SameX same_x) {
    LinearArgs args{x.view(), weight.view(), {}, {}, Accumulate::no, RowInvariant::yes};
    args.same_x = same_x;
    expect_same(args, "with another x before");
  };
  product(first, kernels::SameX::no);
  product(second, kernels::SameX::yes);
  std::memcpy(x.view().data(), other.view().data(), rows * in * sizeof(float));
  product(second, kernels::SameX::no);
  std::memset(x.view().data(), 0, rows * in * sizeof(float));
  product(without, kernels::SameX::no);  // packs no rows, and those of before are old
  product(first, kernels::SameX::yes);
}

/// Gate, up and their activation as one op, where the backend has it for many rows.
TEST_P(Panels, OfGateAndUpHaveTheBitsOfSingleOps) {
  int taken = 0;
  for (const auto& [rows, ffn, in] : {std::array<int64_t, 3>{70, 64, 96},
                                      {97, 40, 650},
                                      {111, 32, 31},
                                      {530, 100, 640},
                                      {70, 33, 5152}})
    for (const kernels::Activation activation :
         {kernels::Activation::silu, kernels::Activation::gelu_tanh, kernels::Activation::clamped})
      for (const bool with_bias : {false, true}) {
        Tensor x = Tensor::random({rows, in}, DType::bf16, 1, 1);
        Tensor gate = Tensor::random({ffn, in}, DType::bf16, 2);
        Tensor up = Tensor::random({ffn, in}, DType::bf16, 3);
        Tensor bias = Tensor::random({ffn}, DType::bf16, 4);
        const TensorView of_both = with_bias ? bias.view() : TensorView();
        Tensor out({rows, ffn}, DType::bf16, std::vector<float>(rows * ffn, 7), 3);
        kernels::GatedLinearArgs args{.x = x.view(),
                                      .gate = gate.view(),
                                      .up = up.view(),
                                      .out = out.view(),
                                      .activation = activation,
                                      .gate_bias = of_both,
                                      .up_bias = of_both};
        EXPECT_FALSE(panelled_.backend->takes_gated_linear(args)) << "without panels";
        use_panels(gate.view());
        use_panels(up.view());
        if (!panelled_.backend->takes_gated_linear(args)) {
          EXPECT_THROW(panelled_.backend->gated_linear(args, panelled_.stream), Unsupported);
        } else {
          ++taken;
          panelled_.backend->gated_linear(args, panelled_.stream);
          Tensor gates = Tensor::filled({rows, ffn}, 0), ups = gates;
          Tensor wanted({rows, ffn}, DType::bf16, std::vector<float>(rows * ffn, 7));
          const auto multiply = [&](Tensor& weight, Tensor& to) {
            plain_.backend->linear({x.view(), weight.view(), of_both, to.view()}, plain_.stream);
          };
          multiply(gate, gates);
          multiply(up, ups);
          plain_.backend->gated_activation({gates.view(), ups.view(), wanted.view(), activation},
                                           plain_.stream);
          EXPECT_EQ(out.values(), wanted.values()) << rows << " rows, " << ffn << " × " << in;
          EXPECT_TRUE(out.gaps_intact());
        }
        panelled_.backend->use_panels(gate.view(), nullptr);
        panelled_.backend->use_panels(up.view(), nullptr);
      }
  const bool packs = GetParam().find("amx") != std::string::npos;
  EXPECT_EQ(taken, packs ? 4 * 3 * 2 : 0) << "rows of 5152 are too long";
}

TEST_P(Panels, ServeViewsOfRowsAndColumns) {
  const int64_t out = 200, in = 320;
  Tensor matrix = Tensor::random({out, in}, DType::bf16, 2);
  use_panels(matrix.view());
  const TensorView all = matrix.view();
  for (const int64_t rows : {1, 5, 20, 80})
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 200}, {64, 96}, {32, 7}, {5, 9}})
      for (const auto& [begin, depth] : {std::pair<int64_t, int64_t>{0, 320},
                                         {160, 160},
                                         {64, 32},
                                         {72, 72},
                                         {288, 32},
                                         {7, 40}})
        for (const int splits : {1, 4}) {
          if (depth % splits != 0) continue;
          Tensor x = Tensor::random({rows, depth}, DType::fp32, 1);
          LinearArgs args{
              x.view(), all.slice_rows(first, count).slice_columns(begin, depth), {}, {}};
          args.row_invariant = RowInvariant::yes;
          args.splits = splits;
          expect_same(args, fmt::format("{} rows, rows {} + {}, columns {} + {}, {} splits", rows,
                                        first, count, begin, depth, splits));
        }
}

/// Columns of a matrix have panels of their own, as of the shift configuration. They are told from
/// the matrix's by their numbers.
TEST_P(Panels, OfColumnsAreReadByProductsWithJustThese) {
  constexpr int64_t out = 96, in = 256, depth = 64;
  Tensor x = Tensor::random({3, in}, DType::fp32, 1);
  Tensor matrix = Tensor::random({out, in}, DType::bf16, 2);
  kernels::Backend& backend = *panelled_.backend;
  const auto is_zero = [&](const TensorView& weight) {
    Tensor y = Tensor::filled({3, weight.rows()}, 7);
    backend.linear({x.view().slice_columns(0, weight.size(1)), weight, {}, y.view()},
                   panelled_.stream);
    return y.values() == std::vector<float>(3 * weight.rows(), 0);
  };
  use_panels(matrix.view());
  for (const int64_t begin : {int64_t{0}, depth, in - depth}) {
    const TensorView columns = matrix.view().slice_columns(begin, depth);
    use_panels(columns);
    std::memset(memory_.back().data(), 0, backend.panel_bytes(columns));
    EXPECT_TRUE(is_zero(columns)) << begin;
    EXPECT_FALSE(is_zero(matrix.view()));
    for (const int64_t other : {0, 64, 128, 192}) {
      if (other == begin) continue;
      EXPECT_FALSE(is_zero(matrix.view().slice_columns(other, depth))) << begin << ", " << other;
    }
    for (const auto& args : {LinearArgs{x.view(), matrix.view(), {}, {}},
                             LinearArgs{x.view(), matrix.view().slice_rows(64, 32), {}, {}},
                             LinearArgs{x.view().slice_columns(0, 128),
                                        matrix.view().slice_columns(begin == 0 ? 0 : 64, 128),
                                        {},
                                        {}}}) {
      LinearArgs invariant = args;
      invariant.row_invariant = RowInvariant::yes;
      expect_same(invariant, fmt::format("beside columns {}", begin));
    }
    backend.use_panels(columns, nullptr);
    EXPECT_FALSE(is_zero(columns));
    use_panels(columns);
    LinearArgs own{x.view().slice_columns(0, depth), columns, {}, {}};
    own.row_invariant = RowInvariant::yes;
    expect_same(own, fmt::format("columns {}", begin));
    backend.use_panels(columns, nullptr);
  }
}

/// What is packed is read: with other panels than the matrix's, other numbers come out.
TEST_P(Panels, AreReadInPlaceOfTheMatrix) {
  Tensor x = Tensor::random({9, 64}, DType::fp32, 1);
  Tensor matrix = Tensor::random({96, 64}, DType::bf16, 2), other = Tensor::filled({96, 64}, 0);
  use_panels(matrix.view());
  const int64_t bytes = panelled_.backend->panel_bytes(matrix.view());
  std::memset(memory_.back().data(), 0, bytes);
  for (const int64_t rows : {1, 9}) {
    Tensor y = Tensor::filled({rows, 32}, 7);
    panelled_.backend->linear(
        {x.view().slice_rows(0, rows), matrix.view().slice_rows(64, 32), {}, y.view()},
        panelled_.stream);
    EXPECT_EQ(y.values(), std::vector<float>(rows * 32, 0)) << rows << " rows";
  }
  // Matrices beside it are read as they are.
  Tensor beside = Tensor::random({96, 64}, DType::bf16, 2);
  expect_same({x.view(), beside.view(), {}, {}, Accumulate::no, RowInvariant::yes}, "beside");
}

/// Few rows, by bf16, read the panels, and more, by fp32, the matrix.
TEST(PanelsOfFewRows, AreNotReadByProductsOfFp32) {
  using kernels::MatmulKind;
  if (!kernels::cpu_has_bf16_products()) GTEST_SKIP() << "this CPU has no products of bf16";
  Device device = make_device("cpu");
  Device fp32 = make_device("cpu");
  device.backend = kernels::make_cpu_backend({MatmulKind::bf16, MatmulKind::fp32, 8});
  fp32.backend = kernels::make_cpu_backend({MatmulKind::fp32, MatmulKind::fp32, 8});
  Tensor x = Tensor::random({9, 64}, DType::fp32, 1),
         matrix = Tensor::random({96, 64}, DType::bf16, 2);
  const int64_t bytes = device.backend->panel_bytes(matrix.view());
  ASSERT_GT(bytes, 0);
  const device::Buffer zeros(bytes);
  std::memset(zeros.data(), 0, bytes);
  device.backend->use_panels(matrix.view(), zeros.data());
  const auto product = [&](Device& by, int64_t rows) {
    Tensor y = Tensor::filled({rows, 96}, 7);
    by.backend->linear({x.view().slice_rows(0, rows), matrix.view(), {}, y.view()}, by.stream);
    return y.values();
  };
  EXPECT_EQ(product(device, 8), std::vector<float>(8 * 96, 0));
  EXPECT_EQ(product(device, 9), product(fp32, 9));
}

TEST_P(Panels, OfOtherTypesAreRefused) {
  Tensor matrix = Tensor::random({32, 32}, DType::fp32, 1);
  EXPECT_EQ(panelled_.backend->panel_bytes(matrix.view()), 0);
  EXPECT_THROW(panelled_.backend->use_panels(matrix.view(), matrix.view().data()), Unsupported);
  Tensor narrow = Tensor::random({40, 32}, DType::bf16, 1);
  std::vector<std::byte> memory(panelled_.backend->panel_bytes(narrow.view()));
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 16}, {8, 40}, {0, 41}, {32, 0}})
    EXPECT_THROW(panelled_.backend->make_panels({narrow.view(), memory.data(), begin, end},
                                                panelled_.stream),
                 InvalidArgument)
        << begin << " to " << end;
}

}  // namespace
}  // namespace pecia::test
