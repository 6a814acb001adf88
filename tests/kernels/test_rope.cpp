// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::RopePairs;

class Rope : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Rope, testing::ValuesIn(every_device()), name_of_device);

void rotate(Device& device, Tensor& x, Tensor& cos, Tensor& sin, RopePairs pairs) {
  device.backend->rope({x.view(), cos.view(), sin.view(), pairs, x.view()}, device.stream);
}

TEST_P(Rope, TurnsTheElementsThatBelongTogether) {
  // One row, two heads of four elements; quarter turns of the first pair, none of the second.
  Tensor cos({1, 2}, DType::fp32, {0, 1}), sin({1, 2}, DType::fp32, {1, 0});
  Tensor halves({1, 2, 4}, DType::fp32, {1, 2, 3, 4, 5, 6, 7, 8});
  Tensor interleaved = halves;

  rotate(device_, halves, cos, sin, RopePairs::halves);
  rotate(device_, interleaved, cos, sin, RopePairs::interleaved);

  EXPECT_EQ(halves.values(), (std::vector<float>{-3, 2, 1, 4, -7, 6, 5, 8}));
  EXPECT_EQ(interleaved.values(), (std::vector<float>{-2, 1, 3, 4, -6, 5, 7, 8}));
}

TEST_P(Rope, LeavesWhatIsBeyondRotaryDim) {
  Tensor cos({1, 1}, DType::fp32, {0}), sin({1, 1}, DType::fp32, {1});
  Tensor x({1, 1, 5}, DType::fp32, {1, 2, 3, 4, 5});
  rotate(device_, x, cos, sin, RopePairs::halves);
  EXPECT_EQ(x.values(), (std::vector<float>{-2, 1, 3, 4, 5}));
}

TEST_P(Rope, AgreesWithTheReferenceAndKeepsLengths) {
  Device oracle = make_device("reference");
  for (const RopePairs pairs : {RopePairs::halves, RopePairs::interleaved})
    for (const int64_t half : {0, 1, 4, 7, 8, 16, 20, 32, 40, 64})
      for (const int64_t rows : {0, 1, 5, 100}) {
        const int64_t head_dim = 2 * half + 3;
        const std::vector<float> angles = random_floats(rows * half, 5, 10.0f);
        std::vector<float> cosines, sines;
        for (const float angle : angles) {
          cosines.push_back(std::cos(angle));
          sines.push_back(std::sin(angle));
        }
        Tensor cos({rows, half}, DType::fp32, cosines, 1), sin({rows, half}, DType::fp32, sines, 1);
        Tensor x = Tensor::random({rows, 3, head_dim}, DType::fp32, 1);
        Tensor expected = x;
        const std::vector<float> before = x.values();

        rotate(device_, x, cos, sin, pairs);
        rotate(oracle, expected, cos, sin, pairs);

        const std::vector<float> after = x.values();
        EXPECT_TRUE(all_close(after, expected.values(), 1e-6)) << "half " << half;
        double length_before = 0, length_after = 0;
        for (const float value : before) length_before += double{value} * value;
        for (const float value : after) length_after += double{value} * value;
        EXPECT_NEAR(length_after, length_before, 1e-6 * length_before);
      }
}

TEST_P(Rope, RefusesTablesLongerThanHeads) {
  Tensor cos = Tensor::filled({1, 3}, 1), x = Tensor::filled({1, 1, 4}, 1);
  EXPECT_THROW(rotate(device_, x, cos, cos, RopePairs::halves), InvalidArgument);
}

/// Each head has elements beyond rotary_dim, or none.
TEST_P(Rope, WritesElsewhereWhatItWritesInPlaceRoundedOnce) {
  for (const DType stored : stored_types)
    for (const RopePairs pairs : {RopePairs::halves, RopePairs::interleaved})
      for (const int64_t half : {0, 3, 4, 32})
        for (const int64_t beyond : {0, 4, 5}) {
          if (half + beyond == 0) continue;
          const DType narrow = device_.backend->operand_type(stored);
          SCOPED_TRACE(testing::Message()
                       << name_of(narrow) << ", half " << half << ", " << beyond << " beyond");
          Tensor cos = Tensor::random({7, half}, DType::fp32, 1);
          Tensor sin = Tensor::random({7, half}, DType::fp32, 2);
          Tensor x = Tensor::random({7, 3, 2 * half + beyond}, DType::fp32, 3);
          const std::vector<float> before = x.values();
          Tensor out({7, 3, 2 * half + beyond}, narrow, std::vector<float>(before.size(), 55.0f));
          device_.backend->rope({x.view(), cos.view(), sin.view(), pairs, out.view()},
                                device_.stream);
          EXPECT_EQ(x.values(), before);
          rotate(device_, x, cos, sin, pairs);
          EXPECT_EQ(out.values(), Tensor({7, 3, 2 * half + beyond}, narrow, x.values()).values());
        }
}

/// What the beginnings of heads become when they stand in the middle, times a number for each row.
/// Also where several elements are rotated at once.
TEST_P(Rope, RotatesWithinHeadsAndScalesThem) {
  struct Widths {
    int64_t before, half, beyond;
  };
  for (const auto& [before, half, beyond] : {Widths{3, 9, 2}, Widths{4, 8, 0}, Widths{0, 8, 4}})
    for (const RopePairs pairs : {RopePairs::halves, RopePairs::interleaved}) {
      constexpr int64_t rows = 5, heads = 2;
      const int64_t width = before + 2 * half + beyond;
      Tensor cos = Tensor::random({rows, half}, DType::fp32, 1);
      Tensor sin = Tensor::random({rows, half}, DType::fp32, 2);
      Tensor scale = Tensor::random({rows}, DType::fp32, 3);
      Tensor x = Tensor::random({rows, heads, width}, DType::fp32, 4);
      std::vector<float> expected = x.values(), rotated;
      const auto turned_at = [&](int64_t head) { return expected.begin() + head * width + before; };
      for (int64_t head = 0; head < rows * heads; ++head)
        rotated.insert(rotated.end(), turned_at(head), turned_at(head) + 2 * half);
      Tensor middle({rows, heads, 2 * half}, DType::fp32, rotated);
      rotate(device_, middle, cos, sin, pairs);
      rotated = middle.values();
      for (int64_t head = 0; head < rows * heads; ++head)
        std::copy_n(rotated.begin() + head * 2 * half, 2 * half, turned_at(head));
      const kernels::RopeArgs inner{x.view(), cos.view(), sin.view(), pairs, x.view(), before};
      kernels::RopeArgs scaled = inner;
      scaled.scale = scale.view();
      Tensor copy = x;
      const DType narrow = device_.backend->operand_type(DType::bf16);
      Tensor elsewhere({rows, heads, width}, narrow, std::vector<float>(expected.size(), 55.0f));
      kernels::RopeArgs scaled_elsewhere = scaled;
      scaled_elsewhere.out = elsewhere.view();
      device_.backend->rope(scaled_elsewhere, device_.stream);
      device_.backend->rope(inner, device_.stream);
      EXPECT_TRUE(all_close(x.values(), expected, 1e-6));
      scaled.x = scaled.out = copy.view();
      device_.backend->rope(scaled, device_.stream);
      for (int64_t i = 0; i < rows * heads * width; ++i)
        expected[i] *= scale.values()[i / (heads * width)];
      EXPECT_TRUE(all_close(copy.values(), expected, 4e-6));
      EXPECT_EQ(elsewhere.values(), Tensor({rows, heads, width}, narrow, copy.values()).values());
    }
}

TEST_P(Rope, RefusesToRotateBeyondTheHead) {
  Tensor cos = Tensor::filled({1, 2}, 1), x = Tensor::filled({1, 1, 6}, 1);
  const kernels::RopeArgs beyond{x.view(), cos.view(), cos.view(), RopePairs::halves, x.view(), 3};
  EXPECT_THROW(device_.backend->rope(beyond, device_.stream), InvalidArgument);
}

TEST_P(Rope, RefusesResultsOfAnotherShape) {
  Tensor cos = Tensor::filled({1, 2}, 1), x = Tensor::filled({1, 2, 4}, 1);
  Tensor out = Tensor::filled({1, 1, 8}, 1);
  EXPECT_THROW(
      device_.backend->rope({x.view(), cos.view(), cos.view(), RopePairs::halves, out.view()},
                            device_.stream),
      InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
