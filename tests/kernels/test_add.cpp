// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

class Add : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Add, testing::ValuesIn(every_device()), name_of_device);

TEST_P(Add, AddsXToY) {
  Tensor x({2, 3}, DType::fp32, {1, 2, 3, -1, 0.5f, 1}, 2);
  Tensor y({2, 3}, DType::fp32, {10, 20, 30, 40, 50, 1e8f}, 1);
  device_.backend->add({x.view(), y.view()}, device_.stream);
  EXPECT_EQ(y.values(), (std::vector<float>{11, 22, 33, 39, 50.5f, 1e8f}));
  EXPECT_TRUE(y.gaps_intact());
}

TEST_P(Add, GivesTheReferencesBitsAtEverySize) {
  Device oracle = make_device("reference");
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int64_t rows : {0, 1, 5, 40})
      for (const int64_t width : {1, 7, 16, 33, 5000})
        for (const int64_t gap : {3, 4}) {  // 4: four elements at a time
          Tensor x = Tensor::random({rows, width}, dtype, 1, gap);
          Tensor y = Tensor::random({rows, width}, DType::fp32, 2), expected = y;
          device_.backend->add({x.view(), y.view()}, device_.stream);
          oracle.backend->add({x.view(), expected.view()}, oracle.stream);
          EXPECT_EQ(y.values(), expected.values())
              << name_of(dtype) << " " << rows << " × " << width << ", gaps of " << gap;
        }
}

TEST_P(Add, MultipliesTheSum) {
  Device oracle = make_device("reference");
  Tensor x({1, 3}, DType::fp32, {1, 2, 3}), y({1, 3}, DType::fp32, {3, 2, 1});
  device_.backend->add({x.view(), y.view(), 0.5f}, device_.stream);
  EXPECT_EQ(y.values(), (std::vector<float>{2, 2, 2}));
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int64_t width : {1, 17, 5000}) {
      Tensor more = Tensor::random({5, width}, dtype, 1, 3);
      Tensor to = Tensor::random({5, width}, DType::fp32, 2), expected = to;
      device_.backend->add({more.view(), to.view(), 0.7f}, device_.stream);
      oracle.backend->add({more.view(), expected.view(), 0.7f}, oracle.stream);
      EXPECT_EQ(to.values(), expected.values()) << name_of(dtype) << ", " << width;
      EXPECT_TRUE(to.gaps_intact());
    }
}

TEST_P(Add, RefusesOtherTypes) {
  Tensor x = Tensor::random({2, 3}, DType::fp16, 1), y = Tensor::filled({2, 3}, 1);
  EXPECT_THROW(device_.backend->add({x.view(), y.view()}, device_.stream), InvalidArgument);
}

TEST_P(Add, RefusesMismatchedShapes) {
  Tensor x = Tensor::filled({2, 3}, 1), y = Tensor::filled({3, 2}, 1);
  EXPECT_THROW(device_.backend->add({x.view(), y.view()}, device_.stream), InvalidArgument);
  EXPECT_EQ(y.values(), std::vector<float>(6, 1));
}

}  // namespace
}  // namespace pecia::test
