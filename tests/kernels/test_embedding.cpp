// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

PECIA_OP_TEST(Embedding);

TEST_P(Embedding, CopiesTheTokensRowsWidened) {
  Tensor table({3, 2}, dtype_, {0.5f, -1.0f, 2.0f, 3.0f, 0.0f, 65504.0f});
  Tensor out = Tensor::filled({4, 2}, 9.0f, 3);
  const std::vector<int32_t> tokens = {2, 0, 0, 1};

  device_.backend->embedding({table.view(), tokens, out.view()}, device_.stream);

  const float large = load_as_float(table.view().row(2), dtype_, 1);
  EXPECT_EQ(out.values(), (std::vector{0.0f, large, 0.5f, -1.0f, 0.5f, -1.0f, 2.0f, 3.0f}));
  EXPECT_TRUE(out.gaps_intact());
}

TEST_P(Embedding, CopiesRowsOfEveryWidthExactly) {
  for (const int64_t hidden : {1, 7, 8, 15, 16, 17, 33, 576})
    for (const int64_t gap : {0, 5}) {
      Tensor table = Tensor::random({11, hidden}, dtype_, 3, gap);
      std::vector<int32_t> tokens(100);
      for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = static_cast<int32_t>(7 * t % 11);
      Tensor out = Tensor::filled({100, hidden}, 9.0f);
      device_.backend->embedding({table.view(), tokens, out.view()}, device_.stream);

      const auto rows = table.values(), actual = out.values();
      for (size_t t = 0; t < tokens.size(); ++t)
        for (int64_t i = 0; i < hidden; ++i)
          ASSERT_EQ(actual[t * hidden + i], rows[tokens[t] * hidden + i])
              << "token " << t << ", element " << i << " of " << hidden;
    }
}

/// −0 is what added to 0, to −0 and to any other number gives that number.
TEST_P(Embedding, OfAPartOfTheVocabularyGivesNegativeZerosForOtherTokens) {
  Tensor table({2, 2}, dtype_, {1.0f, 2.0f, 3.0f, 4.0f});  // tokens 5 and 6
  Tensor out = Tensor::filled({5, 2}, 9.0f);
  const std::vector<int32_t> tokens = {4, 6, 5, 7, 0};

  device_.backend->embedding({table.view(), tokens, out.view(), 5}, device_.stream);

  EXPECT_EQ(out.values(), (std::vector<float>{0, 0, 3, 4, 1, 2, 0, 0, 0, 0}));
  for (const float value : out.values()) EXPECT_EQ(std::signbit(value), value == 0);
}

TEST_P(Embedding, IsMultipliedByTheScale) {
  Tensor table({2, 3}, dtype_, {0.5f, -1.0f, 2.0f, 3.0f, 0.0f, 8.0f});
  Tensor out = Tensor::filled({2, 3}, 9.0f);
  const std::vector<int32_t> tokens = {1, 2};  // the second one is elsewhere
  device_.backend->embedding({table.view(), tokens, out.view(), 0, 3.0f}, device_.stream);
  EXPECT_EQ(out.values(), (std::vector<float>{9, 0, 24, 0, 0, 0}));
  EXPECT_TRUE(std::signbit(out.values()[3]));
}

TEST_P(Embedding, OfNoTokensDoesNothing) {
  Tensor table({1, 2}, dtype_, {1.0f, 2.0f});
  Tensor out({0, 2}, DType::fp32, {});
  EXPECT_NO_THROW(device_.backend->embedding({table.view(), {}, out.view()}, device_.stream));
}

TEST_P(Embedding, RefusesAnOutputOfAnotherShape) {
  Tensor table({1, 2}, dtype_, {1.0f, 2.0f});
  Tensor out = Tensor::filled({2, 2}, 9.0f);
  const std::vector<int32_t> tokens = {0};
  EXPECT_THROW(device_.backend->embedding({table.view(), tokens, out.view()}, device_.stream),
               InvalidArgument);
  EXPECT_EQ(out.values(), std::vector<float>(4, 9.0f));
}

}  // namespace
}  // namespace pecia::test
