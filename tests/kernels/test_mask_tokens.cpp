// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "lib/base/core/random.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

constexpr float none = -std::numeric_limits<float>::infinity();

class MaskTokens : public testing::TestWithParam<std::string> {
 protected:
  void mask(Tensor& logits, int64_t first_token, std::span<const uint32_t> words) {
    device_.backend->mask_tokens({logits.view(), first_token, words}, device_.stream);
  }
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, MaskTokens, testing::ValuesIn(every_device()), name_of_device);

TEST_P(MaskTokens, LeavesThoseWithABit) {
  Tensor logits({2, 3}, DType::fp32, {1, 2, 3, 4, 5, 6}, 2);
  mask(logits, 31, std::vector<uint32_t>{0x80000000u, 0b10, 0x7fffffffu, 0b01});
  EXPECT_EQ(logits.values(), (std::vector<float>{1, none, 3, none, 5, none}));
  EXPECT_TRUE(logits.gaps_intact());
}

TEST_P(MaskTokens, GivesTheReferencesValuesAtEverySize) {
  Device oracle = make_device("reference");
  for (const int64_t rows : {0, 1, 5})
    for (const int64_t width : {1, 31, 32, 33, 700})
      for (const int64_t first : {0, 1, 31, 32, 45}) {
        const int64_t words_of_row = (first + width + 31) / 32 + 1;
        std::vector<uint32_t> words(rows * words_of_row);
        for (size_t i = 0; i < words.size(); ++i)  // a third all zeros, a third all ones
          words[i] = i % 3 == 0 ? 0 : i % 3 == 1 ? ~0u : static_cast<uint32_t>(mix(1, i));
        Tensor logits = Tensor::random({rows, width}, DType::fp32, 1, 3), expected = logits;
        mask(logits, first, words);
        oracle.backend->mask_tokens({expected.view(), first, words}, oracle.stream);
        EXPECT_EQ(logits.values(), expected.values())
            << rows << " × " << width << " from " << first;
        EXPECT_TRUE(logits.gaps_intact());
      }
}

TEST_P(MaskTokens, RefusesTooFewWords) {
  Tensor logits = Tensor::filled({2, 32}, 1);
  const std::vector<uint32_t> words(4);
  EXPECT_THROW(mask(logits, 0, std::span(words).first(3)), InvalidArgument);
  EXPECT_THROW(mask(logits, 33, words), InvalidArgument);
  EXPECT_THROW(mask(logits, -1, words), InvalidArgument);
  EXPECT_EQ(logits.values(), std::vector<float>(64, 1));
  EXPECT_NO_THROW(mask(logits, 32, words));
}

}  // namespace
}  // namespace pecia::test
