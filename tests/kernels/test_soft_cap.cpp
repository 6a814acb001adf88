// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

class SoftCap : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, SoftCap, testing::ValuesIn(every_device()), name_of_device);

TEST_P(SoftCap, IsATangentOfItsCap) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // 3 tanh(x / 3) in double; a twentieth of the cap or less is nearly itself.
  std::vector<float> xs = {0, 1e-6f, 0.3f, 3, -3, 12, 1e30f, -INFINITY, INFINITY},
                     expected = {0,        1e-6f, 0.29900398f, 2.2847825f, -2.2847825f,
                                 2.99799f, 3,     -3,          3};
  xs.push_back(nan);
  const auto first = std::vector<float>(xs.begin(), xs.begin() + 9);
  xs.insert(xs.end(), first.begin(), first.end());  // nineteen: in vectors and in the rest
  Tensor x({1, std::ssize(xs)}, DType::fp32, xs);
  device_.backend->soft_cap({x.view(), 3}, device_.stream);
  const std::vector<float> found = x.values();
  EXPECT_TRUE(all_close(std::span(found).first(9), expected, 1e-12, 1e-6));
  EXPECT_TRUE(std::isnan(found[9]));
  EXPECT_TRUE(all_close(std::span(found).last(9), expected, 1e-12, 1e-6));
}

TEST_P(SoftCap, AgreesWithTheReferenceWhereverItStands) {
  Device oracle = make_device("reference");
  for (const int64_t width : {1, 7, 8, 16, 17, 31, 1536})
    for (const int64_t rows : {0, 1, 40})
      for (const float cap : {0.5f, 30.0f}) {
        Tensor x = Tensor::random({rows, width}, DType::fp32, 1, 3), expected = x;
        Tensor end = x;
        oracle.backend->soft_cap({expected.view(), cap}, oracle.stream);
        device_.backend->soft_cap({x.view(), cap}, device_.stream);
        // A few roundings of expm1, a quotient and a product.
        EXPECT_TRUE(all_close(x.values(), expected.values(), 0, 1e-6)) << rows << " × " << width;
        EXPECT_TRUE(x.gaps_intact());
        device_.backend->soft_cap({end.view().slice_columns(width - 1, 1), cap}, device_.stream);
        for (int64_t row = 0; row < rows; ++row)
          EXPECT_EQ(end.values()[(row + 1) * width - 1], x.values()[(row + 1) * width - 1]);
      }
}

TEST_P(SoftCap, RefusesACapOfZero) {
  Tensor x = Tensor::filled({2, 3}, 1);
  EXPECT_THROW(device_.backend->soft_cap({x.view(), 0}, device_.stream), Error);
}

}  // namespace
}  // namespace pecia::test
