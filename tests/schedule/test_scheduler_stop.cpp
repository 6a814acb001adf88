// SPDX-License-Identifier: Apache-2.0
/// Answers that stop strings end, token by token as the fake model samples them.

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/schedule/fake_replica.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using batch::Turn;
using schedule::SchedulerLimits;
using Texts = std::vector<std::string>;

constexpr int32_t longest = 12;

/// A turn whose first tokens differ from each other and are no stop token, so that a vocabulary may
/// let its answer say anything.
class Answer : public testing::TestWithParam<int> {
 protected:
  Answer() {
    limits_.ring_size = GetParam();
    limits_.kv_tokens = 1000;
    limits_.max_sequences = 8;
    limits_.max_batch_tokens = 10;
    limits_.max_positions = 1000;
    limits_.vocab = 100;
    Turn turn;
    turn.row = 7;
    turn.tokens = {5, 6, 7};
    turn.max_new_tokens = longest;
    request_.turns = {turn};
    Turn& first = request_.turns.front();
    do {
      ++first.random_key;
      tokens_ = serve(limits_, {request_}).rows.at(7).result.tokens;
    } while (std::set<int32_t>(tokens_.begin(), tokens_.end()).size() < longest ||
             std::count(tokens_.begin(), tokens_.end(), stop_token) > 0);
  }

  /// Lets the answer's tokens be these texts, in ByteLevel's alphabet; the next ones are special.
  void say(const Texts& texts) {
    std::string vocab, special;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool has_text = i < texts.size();
      std::string& list = has_text ? vocab : special;
      if (!list.empty()) list += ", ";
      list += has_text ? fmt::format(R"("{}": {})", texts[i], tokens_[i])
                       : fmt::format(R"({{"id": {}, "content": "<{}>", "special": true}})",
                                     tokens_[i], i);
    }
    std::ofstream(folder_ / "tokenizer.json") << fmt::format(
        R"({{"added_tokens": [{}], "decoder": {{"type": "ByteLevel"}}, "model": {{"vocab": {{{}}}}}}})",
        special, vocab);
    limits_.detokenizer = std::make_shared<const io::Detokenizer>(folder_ / "tokenizer.json");
  }

  io::TurnResult stopped_by(const Texts& stop) {
    request_.turns.front().stop = stop;
    return serve(limits_, {request_}).rows.at(7).result;
  }

  void expect_stop(const io::TurnResult& result, size_t tokens, int64_t text_bytes) const {
    EXPECT_EQ(result.finish_reason, io::FinishReason::stop);
    EXPECT_EQ(result.tokens, std::vector<int32_t>(tokens_.begin(), tokens_.begin() + tokens));
    EXPECT_EQ(result.token_logprobs.size(), tokens);
    EXPECT_EQ(result.text_bytes, text_bytes);
  }

  TempFolder folder_;
  SchedulerLimits limits_;
  Request request_;
  std::vector<int32_t> tokens_;  ///< of the answer, without stop strings
};

TEST_P(Answer, EndsWithinOneToken) {
  say({"one", "Ġtwo.Ġ", "Ġthree"});
  expect_stop(stopped_by({"wo."}), 2, 5);
}

TEST_P(Answer, EndsByATextAcrossThreeTokens) {
  say({"one", "Ġt", "w", "oĠthree"});
  expect_stop(stopped_by({"two"}), 4, 4);
}

TEST_P(Answer, EndsWithinACharacterOfTwoTokens) {
  say({"caf", "Ã", "©!", "x"});
  expect_stop(stopped_by({"é"}), 3, 3);
  expect_stop(stopped_by({"é!"}), 3, 3);
}

TEST_P(Answer, EndsByATextWhoseBeginningOverlapsItself) {
  say({"a", "aa", "b"});
  expect_stop(stopped_by({"aab"}), 3, 1);
}

TEST_P(Answer, EndsByTheFirstOfTwoTexts) {
  say({"ab", "cd", "e"});
  expect_stop(stopped_by({"bcde", "cd"}), 2, 2);
  expect_stop(stopped_by({"d", "bcd"}), 2, 1);
}

TEST_P(Answer, GoesOnWithoutAMatch) {
  say({"a", "b"});
  const io::TurnResult result = stopped_by({"ba", "abc"});
  EXPECT_EQ(result.tokens, tokens_);
  EXPECT_EQ(result.finish_reason, io::FinishReason::length);
  EXPECT_EQ(result.text_bytes, -1);
}

TEST_P(Answer, EndsByTheTextAtItsLastToken) {
  say({"a", "b", "c"});
  request_.turns.front().max_new_tokens = 3;
  expect_stop(stopped_by({"bc"}), 3, 1);
}

TEST_P(Answer, EndsByWhicheverOfTextAndTokenComesFirst) {
  say({"a", "b", "c"});
  limits_.stop_token_ids = {tokens_[2]};
  expect_stop(stopped_by({"b"}), 2, 1);
  limits_.stop_token_ids = {tokens_[0]};
  expect_stop(stopped_by({"b"}), 1, -1);
  limits_.stop_token_ids = {tokens_[1]};
  expect_stop(stopped_by({"b"}), 2, -1);  // the stop token's text is no part of the answer
}

TEST_P(Answer, GoesOnAfterTheModelsTokensWhereItIgnoresThem) {
  say({"a", "b", "c"});
  limits_.stop_token_ids = {tokens_[0], tokens_[1]};
  limits_.eos_token_ids = {tokens_[0]};
  expect_stop(stopped_by({}), 1, -1);
  request_.turns.front().ignore_eos = true;
  expect_stop(stopped_by({}), 2, -1);  // a token of the job's stops it all the same
}

TEST_P(Answer, IsTheSameHoweverOftenItIsContinued) {
  say({"on", "e", "Ġt", "Ã", "©", "n"});
  request_.turns.front().stop = {"tén"};
  std::vector<Request> requests = {request_};
  Served served;
  int starts = 0;
  do {
    served = serve(limits_, requests, 2);
    requests = resumed(requests, served);
    for (const auto& partial : served.partial) EXPECT_EQ(partial.result.text_bytes, -1);
    ASSERT_LT(++starts, 20);
  } while (served.rows.empty());
  EXPECT_GT(starts, 2);
  expect_stop(served.rows.at(7).result, 6, 4);
}

TEST_P(Answer, OfAForksStemEndsInTheStemOrInItsBranch) {
  say({"one", "two", "three"});
  request_.followup = io::Followup::fork;
  expect_stop(stopped_by({"ne"}), 1, 1);
  expect_stop(stopped_by({"et"}), 2, 2);
}

TEST_P(Answer, OfEachBranchHasItsOwnTexts) {
  limits_.detokenizer = fake_detokenizer();
  request_.followup = io::Followup::fork;
  request_.turns.front().max_new_tokens = 0;
  for (int64_t row = 8; row < 20; ++row) {
    Turn branch;
    branch.row = row;
    branch.tokens = {9, 9};
    branch.max_new_tokens = 60;
    branch.random_key = static_cast<uint64_t>(row);
    branch.stop = row % 3 == 0 ? Texts{} : row % 3 == 1 ? Texts{"aé"} : Texts{"xx", "é"};
    request_.turns.push_back(branch);
  }
  limits_.stop_token_ids = {};
  const auto rows = serve(limits_, {request_}).rows;
  expect_same(rows, expected(limits_, {request_}));
  int stops = 0;
  for (const auto& [row, finished] : rows) stops += finished.result.text_bytes >= 0;
  EXPECT_GT(stops, 4);
}

TEST_P(Answer, NeedsADetokenizerForStopStrings) {
  EXPECT_THROW(stopped_by({"x"}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Answer, testing::Values(1, 2, 3));

}  // namespace
}  // namespace pecia::test
