// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/meant.hpp"

namespace pecia {
namespace {

using Names = std::vector<std::string>;

TEST(PartsOfName, AreWordsAndNumbersWithUnits) {
  EXPECT_EQ(parts_of_name("meta-llama/Llama-3.1-8B"), (Names{"llama", "3.1", "8b"}));
  EXPECT_EQ(parts_of_name("Qwen3-30B-A3B/"), (Names{"qwen", "3", "30b", "a3b"}));
  EXPECT_EQ(parts_of_name("internlm2_5-7b-1m"), (Names{"internlm", "2.5", "7b", "1m"}));
  EXPECT_EQ(parts_of_name("H100-80GB"), (Names{"h100", "80gb"}));
  EXPECT_EQ(parts_of_name("h100_96gb"), (Names{"h100", "96gb"}));
  EXPECT_EQ(parts_of_name("Mixtral-8x7B-v0.1"), (Names{"mixtral", "8x", "7b", "v", "0.1"}));
  EXPECT_EQ(parts_of_name("..3._"), (Names{"3"}));
  EXPECT_EQ(parts_of_name("/"), Names{});
}

class MeantBy : public testing::Test {
 protected:
  Names meant(std::string_view typed) const { return meant_by(typed, known_); }
  const std::vector<KnownName> known_{{"llama-2-7b"},
                                      {"llama-3-8b"},
                                      {"llama-3.1-8b"},
                                      {"llama-3-70b"},
                                      {"llama-3.1-70b"},
                                      {"qwen2.5-32b"},
                                      {"h100-gtt", "H100-96GB"},
                                      {"h100-gti", "H100-96GB"},
                                      {"h100-nvswitch", "H100-80GB"}};
};

TEST_F(MeantBy, NumbersAndWordsCountNotTheirSpelling) {
  EXPECT_EQ(meant("llama3-70b"), Names{"llama-3-70b"});
  EXPECT_EQ(meant("Llama-3.1-70B-Instruct"), Names{"llama-3.1-70b"});
  EXPECT_EQ(meant("meta-llama/Meta-Llama-3-8B"), Names{"llama-3-8b"});
  EXPECT_EQ(meant("llama-70b"), (Names{"llama-3-70b", "llama-3.1-70b"}));
  EXPECT_EQ(meant("llama-70b-instruct"), (Names{"llama-3-70b", "llama-3.1-70b"}));
  EXPECT_EQ(meant("Qwen2_5-32B"), Names{"qwen2.5-32b"});
  EXPECT_EQ(meant("70b"), (Names{"llama-3-70b", "llama-3.1-70b"}));
}

TEST_F(MeantBy, OtherWordsOfTheNameCount) {
  EXPECT_EQ(meant("h100"), (Names{"h100-gtt", "h100-gti", "h100-nvswitch"}));
  EXPECT_EQ(meant("NVIDIA H100-80GB SXM5"), Names{"h100-nvswitch"});
  EXPECT_EQ(meant("h100_96gb"), (Names{"h100-gtt", "h100-gti"}));
}

TEST_F(MeantBy, AnotherSizeOrVersionIsNotMeant) {
  EXPECT_EQ(meant("llama-2-70b"), Names{}) << "one letter from llama-2-7b";
  EXPECT_EQ(meant("llama-3-13b"), Names{});
  EXPECT_EQ(meant("qwen2.5-7b"), Names{});
  EXPECT_EQ(meant("h100-40gb"), Names{});
  EXPECT_EQ(meant("b100-gtt"), Names{}) << "one letter from h100-gtt";
}

TEST_F(MeantBy, MistypedWordsAreFoundByTheirSpelling) {
  EXPECT_EQ(meant("lama-3-8b"), Names{"llama-3-8b"});
  EXPECT_EQ(meant("h100-gt"), (Names{"h100-gtt", "h100-gti"}));
  EXPECT_EQ(meant("h100-nvswich"), Names{"h100-nvswitch"});
}

TEST_F(MeantBy, NothingIsMeantByAnythingElse) {
  for (const char* typed : {"", "/", "no such folder", "laptop of mine", "gpt-4"})
    EXPECT_EQ(meant(typed), Names{}) << typed;
  EXPECT_EQ(meant("llama-3-8b" + std::string(1000, 'x')), Names{});
}

TEST(AnyOfText, NamesAreAlternatives) {
  EXPECT_EQ(any_of_text({}), "");
  EXPECT_EQ(any_of_text(Names{"a"}), "a");
  EXPECT_EQ(any_of_text(Names{"a", "b"}), "a or b");
  EXPECT_EQ(any_of_text(Names{"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace pecia
