// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

class Cast : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Cast, testing::ValuesIn(every_device()), name_of_device);

TEST_P(Cast, RoundsToNearestEvenAndWidens) {
  // bf16 has 8 digits: 257 lies between 256 and 258, and 259 between 258 and 260.
  Tensor x({2, 3}, DType::fp32, {1, -0.5f, 257, 259, 1e30f, 0}, 2);
  Tensor narrow = Tensor::random({2, 3}, DType::bf16, 1, 1), wide = Tensor::filled({2, 3}, 9, 1);
  device_.backend->cast({x.view(), narrow.view()}, device_.stream);
  const float large = bf16_to_float(float_to_bf16(1e30f));
  EXPECT_EQ(narrow.values(), (std::vector<float>{1, -0.5f, 256, 260, large, 0}));
  EXPECT_TRUE(narrow.gaps_intact());
  device_.backend->cast({narrow.view(), wide.view()}, device_.stream);
  EXPECT_EQ(wide.values(), narrow.values());
  EXPECT_TRUE(wide.gaps_intact());
}

TEST_P(Cast, KeepsInfinityAndNaN) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t width : {1, 40}) {
    Tensor x = Tensor::filled({3, width}, NAN), out = Tensor::random({3, width}, DType::bf16, 1);
    for (int64_t i = 0; i < width; ++i)
      static_cast<float*>(x.view().row(1))[i] = infinity,
      static_cast<float*>(x.view().row(2))[i] = -infinity;
    device_.backend->cast({x.view(), out.view()}, device_.stream);
    const std::vector<float> values = out.values();
    for (int64_t i = 0; i < width; ++i) {
      EXPECT_TRUE(std::isnan(values[i]));
      EXPECT_EQ(values[width + i], infinity);
      EXPECT_EQ(values[2 * width + i], -infinity);
    }
  }
}

TEST_P(Cast, GivesTheReferencesBitsAtEverySize) {
  Device oracle = make_device("reference");
  for (const auto& [from, to] : {std::pair(DType::fp32, DType::bf16), {DType::bf16, DType::fp32}})
    for (const int64_t rows : {0, 1, 5, 40})
      for (const int64_t width : {1, 7, 16, 33, 5000})
        for (const int64_t gap : {3, 4}) {  // 4: four elements at a time
          Tensor x = Tensor::random({rows, width}, from, 1, gap);
          Tensor out = Tensor::random({rows, width}, to, 2, gap), expected = out;
          device_.backend->cast({x.view(), out.view()}, device_.stream);
          oracle.backend->cast({x.view(), expected.view()}, oracle.stream);
          EXPECT_EQ(out.values(), expected.values())
              << "to " << name_of(to) << ": " << rows << " × " << width << ", gaps of " << gap;
          EXPECT_TRUE(out.gaps_intact());
        }
}

TEST_P(Cast, RefusesOtherTypesAndShapes) {
  Tensor x = Tensor::filled({2, 3}, 1), same = x, half = Tensor::random({2, 3}, DType::fp16, 1);
  Tensor turned = Tensor::random({3, 2}, DType::bf16, 1);
  for (Tensor* out : {&same, &half, &turned})
    EXPECT_THROW(device_.backend->cast({x.view(), out->view()}, device_.stream), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
