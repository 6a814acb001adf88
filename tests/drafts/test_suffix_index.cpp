// SPDX-License-Identifier: Apache-2.0
/// Continuations of texts are those that looking at each place of the text gives.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lib/base/core/random.hpp"
#include "lib/engine/drafts/answer_index.hpp"

namespace pecia::drafts {
namespace {

using Text = std::vector<int32_t>;

SuffixIndex index_of(const Text& text) {
  SuffixIndex index;
  index.add(text);
  return index;
}

/// By the definition of SuffixIndex::continuation.
Draft reference(const Text& text, std::span<const int32_t> end, int64_t most) {
  const auto after = [&](int64_t place, int64_t ahead) {
    return place + ahead < std::ssize(text) ? text[place + ahead] : SuffixIndex::end_of_text;
  };
  Draft draft;
  std::vector<int64_t> places;
  int64_t seen = 0;
  for (int64_t place = std::ssize(text) - 1; place >= 0 && seen < SuffixIndex::most_places;
       --place) {
    int64_t match = 0;
    while (match <= place && match < std::min(std::ssize(end), SuffixIndex::most_match) &&
           text[place - match] == end[std::ssize(end) - 1 - match])
      ++match;
    if (match < SuffixIndex::least_match || after(place, 1) == SuffixIndex::end_of_text) continue;
    ++seen;
    if (match > draft.match) places.clear(), draft.match = match;
    if (match == draft.match) places.push_back(place);
  }
  while (std::ssize(draft.tokens) < most) {
    const int64_t ahead = std::ssize(draft.tokens) + 1;
    std::map<int32_t, int64_t> votes;
    for (const int64_t place : places) ++votes[after(place, ahead)];
    votes.erase(SuffixIndex::end_of_text);
    if (votes.empty()) break;
    const auto best = std::ranges::max_element(votes, {}, [](const auto& of) { return of.second; });
    const auto latest = std::ranges::find_if(places, [&](int64_t place) {
      const auto of = votes.find(after(place, ahead));
      return of != votes.end() && of->second == best->second;
    });
    draft.tokens.push_back(after(*latest, ahead));
    std::erase_if(places,
                  [&](int64_t place) { return after(place, ahead) != draft.tokens.back(); });
  }
  return draft;
}

TEST(SuffixIndex, ContinuesTheLongestMatch) {
  const SuffixIndex index = index_of({7, 1, 2, 3, 9, 8, 1, 2, 3, 4, 8, 1, 2, 3});
  const Draft draft = index.continuation(index.end(), 3);
  EXPECT_EQ(draft.tokens, (Text{4, 8, 1}));
  EXPECT_EQ(draft.match, 4);
  EXPECT_EQ(index.continuation(Text{7, 1, 2}, 1).match, 3) << "the end of another text";
}

TEST(SuffixIndex, TakesWhatCameMostOftenAndThenLatest) {
  const SuffixIndex most = index_of({1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2});
  EXPECT_EQ(most.continuation(Text{1, 2}, 1).tokens, Text{3});
  const SuffixIndex latest = index_of({1, 2, 3, 1, 2, 4, 1, 2});
  EXPECT_EQ(latest.continuation(Text{1, 2}, 1).tokens, Text{4});
}

TEST(SuffixIndex, HasNothingToSayOfNewText) {
  for (const Text& text : {Text{}, Text{5}, Text{5, 5}, Text{1, 2, 3, 4}}) {
    const SuffixIndex index = index_of(text);
    EXPECT_TRUE(index.continuation(index.end(), 8).tokens.empty());
  }
  EXPECT_EQ(index_of({5, 5, 5}).continuation(Text{5, 5}, 8).tokens, Text{5});
}

/// Texts of few and of many tokens, with repetitions, borders and copies.
Text random_text(uint64_t seed) {
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(uniform(seed, drawn++) * static_cast<double>(below));
  };
  const int64_t length = draw(400), vocab = 1 + draw(seed % 3 == 0 ? 3 : 60);
  Text text;
  while (std::ssize(text) < length) {
    const int64_t size = std::ssize(text);
    if (size > 2 && draw(3) == 0) {  // a copy
      const int64_t from = draw(size), count = std::min(size - from, 1 + draw(100));
      for (int64_t i = 0; i < count; ++i) text.push_back(text[from + i]);
    } else {
      text.push_back(draw(20) == 0 ? SuffixIndex::end_of_text : static_cast<int32_t>(draw(vocab)));
    }
  }
  return text;
}

TEST(SuffixIndex, AgreesWithASearchOfAllPlaces) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Text text = random_text(seed), other = random_text(seed + 1000);
    SuffixIndex index;
    for (size_t size = 0; size < text.size(); ++size) {
      index.add(text[size]);
      if (size % 7 != 0) continue;
      const Text so_far(text.begin(), text.begin() + static_cast<int64_t>(size) + 1);
      const auto other_end = std::span(other).first(std::min(size, other.size()));
      for (const auto end : {index.end(), other_end}) {
        if (std::ranges::count(end.last(std::min<size_t>(end.size(), 2)),
                               SuffixIndex::end_of_text) > 0)
          continue;
        const Draft draft = index.continuation(end, 9), wanted = reference(so_far, end, 9);
        ASSERT_EQ(draft.tokens, wanted.tokens) << "seed " << seed << ", " << size << " tokens";
        ASSERT_EQ(draft.match, wanted.match) << "seed " << seed << ", " << size << " tokens";
      }
    }
    EXPECT_LE(index.bytes(), SuffixIndex::bytes_per_token * index.size() + 512);
  }
}

TEST(SuffixIndex, TakesNoMoreMemoryThanItSays) {
  SuffixIndex index;
  for (int32_t i = 0; i < 300000; ++i) {
    index.add(static_cast<int32_t>(mix(1, static_cast<uint64_t>(i)) % 50000));
    if (i % 1000 != 0) continue;
    ASSERT_LE(index.bytes(), SuffixIndex::bytes_per_token * index.size() + 512) << i;
  }
}

TEST(AnswerIndex, KeepsTheLatestAnswers) {
  AnswerIndex index(40);
  index.add(Text{1, 2, 3});
  EXPECT_EQ(index.continuation(Text{9, 1, 2}, 4).tokens, Text{3});
  EXPECT_EQ(index.continuation(Text{2, 3}, 4).tokens, Text{}) << "it ended there";
  for (int32_t i = 0; i < 8; ++i) {
    index.add(Text{10, i, 20, 21, i});
    EXPECT_LE(index.size(), 40);
    EXPECT_EQ(index.continuation(Text{10, i}, 9).tokens, (Text{20, 21, i}));
  }
  EXPECT_EQ(index.continuation(Text{1, 2}, 4).tokens, Text{}) << "it has left";
  index.add(Text(100, 7));
  EXPECT_LE(index.size(), 40);
}

}  // namespace
}  // namespace pecia::drafts
