// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

class SquareSums : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, SquareSums, testing::ValuesIn(every_device()), name_of_device);

TEST_P(SquareSums, OfEachHeadOfEachRow) {
  Tensor x({2, 2, 2}, DType::fp32, {1, 2, 3, 4, -5, 0, 0.5f, -0.5f});
  Tensor sums = Tensor::filled({2, 2}, 9.0f, 3);
  device_.backend->square_sums({x.view(), sums.view()}, device_.stream);
  EXPECT_EQ(sums.values(), (std::vector<float>{5, 25, 25, 0.5f}));
  EXPECT_TRUE(sums.gaps_intact());
}

TEST_P(SquareSums, AgreeWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t head_dim : {2, 8, 24, 64, 128, 200})
    for (const int64_t heads : {1, 3, 17})
      for (const int64_t rows : {0, 1, 40}) {
        Tensor x = Tensor::random({rows, heads, head_dim}, DType::fp32, 1);
        Tensor expected = Tensor::filled({rows, heads}, 0), sums = expected;
        oracle.backend->square_sums({x.view(), expected.view()}, oracle.stream);
        device_.backend->square_sums({x.view(), sums.view()}, device_.stream);
        EXPECT_TRUE(all_close(sums.values(), expected.values(), 1e-7, 0x1p-21))
            << rows << " × " << heads << " × " << head_dim;
      }
}

/// Ranks with some of the heads each, as one with all of them.
TEST_P(SquareSums, MakeANormOverAllHeadsWhoseBitsDoNotDependOnHowHeadsAreCut) {
  constexpr int64_t rows = 5, heads = 6, head_dim = 16, width = heads * head_dim;
  Tensor x = Tensor::random({rows, width}, DType::fp32, 1);
  Tensor weight = Tensor::random({width}, DType::bf16, 2);
  Tensor squares = Tensor::filled({rows, heads}, 0), whole = Tensor::filled({rows, width}, 0);
  device_.backend->square_sums({x.view().reshape({rows, heads, head_dim}), squares.view()},
                               device_.stream);
  const auto norm = [&](const TensorView& in, const TensorView& by, const TensorView& out) {
    device_.backend->rms_norm({.x = in,
                               .weight = by,
                               .eps = 1e-5f,
                               .out = out,
                               .squares = squares.view(),
                               .whole_width = width},
                              device_.stream);
  };
  norm(x.view(), weight.view(), whole.view());

  Tensor at_once = Tensor::filled({rows, width}, 0);
  device_.backend->rms_norm({x.view(), weight.view(), 1e-5f, at_once.view()}, device_.stream);
  EXPECT_TRUE(all_close(whole.values(), at_once.values(), 1e-7, 1e-6));

  Tensor parts = Tensor::filled({rows, width}, 0);
  for (const int64_t first : {0, 4}) {
    const int64_t begin = first * head_dim, count = (first == 0 ? 4 : 2) * head_dim;
    norm(x.view().slice_columns(begin, count), weight.view().slice_rows(begin, count),
         parts.view().slice_columns(begin, count));
  }
  EXPECT_EQ(parts.values(), whole.values());
}

TEST_P(SquareSums, RefuseSumsOfAnotherShape) {
  Tensor x = Tensor::filled({2, 3, 4}, 1), sums = Tensor::filled({2, 4}, 0);
  EXPECT_THROW(device_.backend->square_sums({x.view(), sums.view()}, device_.stream),
               InvalidArgument);
  Tensor flat = Tensor::filled({2, 12}, 1), weight = Tensor::filled({12}, 1);
  Tensor squares = Tensor::filled({2, 3}, 1);
  EXPECT_THROW(device_.backend->rms_norm({.x = flat.view(),
                                          .weight = weight.view(),
                                          .eps = 0,
                                          .out = flat.view(),
                                          .squares = squares.view(),
                                          .whole_width = 11},
                                         device_.stream),
               InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
