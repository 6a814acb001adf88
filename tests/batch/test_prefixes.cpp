// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "lib/work/batch/prefixes.hpp"

namespace pecia::batch {
namespace {

using Prompts = std::vector<std::vector<int32_t>>;

/// All letters of a text as tokens.
std::vector<int32_t> letters(std::string_view text) {
  return {text.begin(), text.end()};
}

std::vector<PromptPrefix> hashed(const Prompts& prompts, int64_t block, int64_t answer_tokens = 0) {
  std::vector<PromptPrefix> all;
  for (const auto& prompt : prompts)
    all.push_back(
        {std::ssize(all), std::ssize(prompt), answer_tokens, prefix_hashes(prompt, block, 0)});
  return all;
}

std::vector<SharedPrefix> found(const std::vector<std::string>& texts, const PrefixRules& rules) {
  Prompts prompts;
  for (const std::string& text : texts) prompts.push_back(letters(text));
  return find_prefixes(hashed(prompts, rules.block), rules);
}

TEST(Prefixes, OfTheWorkedExampleAreShared) {
  EXPECT_EQ(found({"abcde", "abcdfg", "abcdh"}, {.block = 2}),
            (std::vector<SharedPrefix>{{4, {0, 1, 2}}}));
}

TEST(Prefixes, LeaveEveryPromptALastToken) {
  EXPECT_EQ(found({"abcd", "abcd", "abcde"}, {.block = 2}),
            (std::vector<SharedPrefix>{{2, {0, 1, 2}}}));
  EXPECT_EQ(found({"ab", "ab"}, {.block = 2}), std::vector<SharedPrefix>{});
}

TEST(Prefixes, OfAFewGoBeforeAShorterOneOfAllWhereTheySaveMore) {
  const std::vector<std::string> few_long = {"aabbccddx", "aabbccddy", "aaz", "aaw"};
  EXPECT_EQ(found(few_long, {.block = 2}), (std::vector<SharedPrefix>{{8, {0, 1}}}))
      << "8 tokens instead of 3 · 2";
  const std::vector<std::string> many_short = {"aabbx", "aabby", "aaz", "aaw", "aav"};
  EXPECT_EQ(found(many_short, {.block = 2}), (std::vector<SharedPrefix>{{2, {0, 1, 2, 3, 4}}}))
      << "4 · 2 tokens instead of 4";
}

TEST(Prefixes, AreNotSharedWhereTheySaveLittle) {
  const std::string long_a(100, 'a'), long_b(100, 'b');
  EXPECT_EQ(found({"xx" + long_a, "xx" + long_b}, {.block = 2}), std::vector<SharedPrefix>{})
      << "2 of 204 tokens";
  EXPECT_EQ(std::ssize(found({"xx" + long_a, "xx" + long_b}, {.block = 2, .least_saved = 0})), 1);
}

/// Texts whose requests have so many branches each.
std::vector<SharedPrefix> found_of(const std::vector<std::pair<std::string, int64_t>>& texts,
                                   const PrefixRules& rules) {
  Prompts prompts;
  for (const auto& [text, branches] : texts) prompts.push_back(letters(text));
  std::vector<PromptPrefix> all = hashed(prompts, rules.block);
  for (size_t i = 0; i < texts.size(); ++i) all[i].branches = texts[i].second;
  return find_prefixes(all, rules);
}

TEST(Prefixes, OfAForkAreSharedWhereItsTurnsComputeLessAgain) {
  const PrefixRules rules = {.block = 2, .least_saved = 0};
  EXPECT_EQ(found_of({{"abcde", 1}, {"abcde", 3}}, rules), (std::vector<SharedPrefix>{{4, {0, 1}}}))
      << "4 tokens, and 2 again";
  EXPECT_EQ(found_of({{"abcde", 1}, {"abcde", 5}}, rules), std::vector<SharedPrefix>{})
      << "4 tokens, and 4 again";
  EXPECT_EQ(found_of({{"abcde", 2}, {"abcdf", 3}}, rules), (std::vector<SharedPrefix>{{4, {0, 1}}}))
      << "two forks: 4 tokens, and 1 + 2 again";
  EXPECT_EQ(found_of({{"abcdxxx", 3}, {"abcde", 1}, {"abcdf", 1}}, rules),
            (std::vector<SharedPrefix>{{4, {1, 2}}}))
      << "4 tokens, and 2 · 3 again: the others share without the fork";
}

TEST(Prefixes, OfManyBranchesComeInPieces) {
  const auto pieces = found_of({{"aax", 2}, {"aay", 2}, {"aaz", 2}, {"aaw", 2}},
                               {.block = 2, .least_saved = 0, .most_branches = 4});
  EXPECT_EQ(pieces, (std::vector<SharedPrefix>{{2, {0, 1}}, {2, {2, 3}}}));
}

TEST(Prefixes, OfDifferentKindsHaveNothingInCommon) {
  const auto tokens = letters("aabbccd");
  std::vector<PromptPrefix> prompts;
  for (const uint64_t kind : {0, 1, 1})
    prompts.push_back({std::ssize(prompts), 7, 0, prefix_hashes(tokens, 2, kind)});
  EXPECT_EQ(find_prefixes(prompts, {.block = 2}), (std::vector<SharedPrefix>{{6, {1, 2}}}));
}

TEST(Prefixes, AreDividedAmongReplicasThatHadNothingToDo) {
  // One beginning of 10 tokens, and 8 questions of 10 tokens with their answers.
  Prompts one(8, std::vector<int32_t>(15, 1));
  for (int32_t i = 0; i < 8; ++i) one[i].back() = 10 + i;
  const auto parts = [&](const Prompts& prompts, int replicas) {
    return find_prefixes(hashed(prompts, 10, 5), {.block = 10, .parts = replicas});
  };
  EXPECT_EQ(std::ssize(parts(one, 1)), 1);
  EXPECT_EQ(parts(one, 2), (std::vector<SharedPrefix>{{10, {0, 1, 2, 3}}, {10, {4, 5, 6, 7}}}));
  // Two books on two replicas: each has its own.
  Prompts two = one;
  for (auto prompt : one) {
    std::fill_n(prompt.begin(), 10, 2);
    two.push_back(prompt);
  }
  EXPECT_EQ(std::ssize(parts(two, 2)), 2);
  // Beside much other work a group is not divided.
  Prompts beside = one;
  for (int32_t i = 0; i < 4; ++i) beside.push_back(std::vector<int32_t>(400, 50 + i));
  EXPECT_EQ(std::ssize(parts(beside, 4)), 1);
}

TEST(Prefixes, ComeInPiecesThatASchedulerCanHold) {
  Prompts prompts;
  for (int32_t i = 0; i < 10; ++i) prompts.push_back({1, 1, 10 + i});
  const auto pieces = find_prefixes(hashed(prompts, 2), {.block = 2, .most_branches = 4});
  ASSERT_EQ(pieces.size(), 3u);
  std::vector<int64_t> all;
  for (const SharedPrefix& piece : pieces) {
    EXPECT_LE(piece.requests.size(), 4u);
    all.insert(all.end(), piece.requests.begin(), piece.requests.end());
  }
  std::vector<int64_t> each(10);
  std::iota(each.begin(), each.end(), 0);
  EXPECT_EQ(all, each);
}

/// The most tokens that groups of these prompts can save, by trying every length for the prompts
/// that have the beginning in common. A group has those that save some.
int64_t most_saved(const std::vector<PromptPrefix>& all, const Prompts& prompts, size_t length) {
  int64_t saved = -static_cast<int64_t>(length);
  for (const PromptPrefix& prompt : all)
    saved += std::max<int64_t>(0, prompt.spared_by(static_cast<int64_t>(length)));
  std::map<int32_t, std::vector<PromptPrefix>> next;
  for (const PromptPrefix& prompt : all) {
    const auto& tokens = prompts[prompt.request];
    if (tokens.size() > length + 1) next[tokens[length]].push_back(prompt);
  }
  int64_t deeper = 0;
  for (const auto& [token, some] : next)
    if (some.size() > 1) deeper += most_saved(some, prompts, length + 1);
  return std::max(saved, deeper);
}

TEST(Prefixes, SaveAsMuchAsGroupsCan) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Prompts prompts(1 + random() % 12);
    for (auto& prompt : prompts) {
      prompt.resize(1 + random() % 8);
      for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 2);
    }
    std::vector<PromptPrefix> all = hashed(prompts, 1);
    for (PromptPrefix& prompt : all) prompt.branches = seed % 2 == 0 ? 1 : 1 + random() % 3;
    int64_t saved = 0;
    std::vector<int64_t> grouped;
    for (const SharedPrefix& prefix : find_prefixes(all, {.block = 1, .least_saved = 0})) {
      ASSERT_GT(prefix.requests.size(), 1u);
      saved -= prefix.tokens;
      for (const int64_t request : prefix.requests) {
        grouped.push_back(request);
        ASSERT_GT(std::ssize(prompts[request]), prefix.tokens);
        ASSERT_GT(all[request].spared_by(prefix.tokens), 0);
        saved += all[request].spared_by(prefix.tokens);
        EXPECT_TRUE(std::equal(prompts[request].begin(), prompts[request].begin() + prefix.tokens,
                               prompts[prefix.requests.front()].begin()));
      }
    }
    std::ranges::sort(grouped);
    EXPECT_EQ(std::ranges::adjacent_find(grouped), grouped.end()) << "a request is in two groups";
    EXPECT_EQ(saved, most_saved(all, prompts, 0));
  }
}

}  // namespace
}  // namespace pecia::batch
