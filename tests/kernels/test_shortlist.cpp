// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::Candidate;
using kernels::no_token;
using kernels::SamplingRow;
using kernels::TopToken;

constexpr float infinity = std::numeric_limits<float>::infinity();

class Shortlist : public testing::TestWithParam<std::string> {
 protected:
  struct Lists {
    std::vector<double> log_sums;
    std::vector<Candidate> candidates;
    std::vector<TopToken> tops;

    std::vector<int32_t> tokens() const {
      std::vector<int32_t> tokens;
      for (const Candidate& each : candidates) tokens.push_back(each.token);
      return tokens;
    }
    std::vector<int32_t> top_tokens() const {
      std::vector<int32_t> tokens;
      for (const TopToken& each : tops) tokens.push_back(each.token);
      return tokens;
    }
  };
  struct Ask {
    int64_t first_token = 0, num_candidates = 1, num_top = 0;
    std::vector<int32_t> wanted = {};
  };

  Lists shorten(const std::vector<float>& logits, const std::vector<SamplingRow>& rows,
                const Ask& ask) {
    return shorten_on(device_, logits, rows, ask);
  }
  static Lists shorten_on(Device& device, std::vector<float> logits,
                          const std::vector<SamplingRow>& rows, const Ask& ask) {
    const auto count = static_cast<int64_t>(ask.wanted.empty() ? rows.size() : ask.wanted.size());
    const auto part = static_cast<int64_t>(logits.size()) / count;
    Lists lists{std::vector<double>(count), std::vector<Candidate>(count * ask.num_candidates),
                std::vector<TopToken>(count * ask.num_top)};
    device.backend->shortlist({.logits = {logits.data(), DType::fp32, {count, part}},
                               .first_token = ask.first_token,
                               .rows = rows,
                               .wanted = ask.wanted,
                               .num_candidates = ask.num_candidates,
                               .num_top = ask.num_top,
                               .log_sums = lists.log_sums,
                               .candidates = lists.candidates,
                               .tops = lists.tops},
                              device.stream);
    return lists;
  }

  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Shortlist, testing::ValuesIn(every_device()), name_of_device);

const std::vector<SamplingRow> plain(1);

TEST_P(Shortlist, HasTheBestOfItsPart) {
  const std::vector<float> logits = {1, 5, 3, 5, 4};
  const Lists lists = shorten(logits, plain, {100, 3, 2});
  EXPECT_EQ(lists.tokens(), (std::vector<int32_t>{101, 103, 104}));
  EXPECT_EQ(lists.candidates[2].logit, 4);
  EXPECT_EQ(lists.candidates[2].score, 4);
  EXPECT_EQ(lists.top_tokens(), (std::vector<int32_t>{101, 103}));
  EXPECT_EQ(lists.tops[1].logit, 5);
  const double sum = std::exp(1.0) + 2 * std::exp(5.0) + std::exp(3.0) + std::exp(4.0);
  EXPECT_NEAR(lists.log_sums[0], std::log(sum), 1e-6);
  EXPECT_EQ(shorten(logits, plain, {100}).tokens(), std::vector<int32_t>{101}) << "the lowest id";
}

TEST_P(Shortlist, ScoresAreAfterPenaltiesAndTopsBefore) {
  const std::vector<int32_t> prompt = {101, 7}, output = {103, 103, 9};
  const SamplingRow row{
      {.repetition_penalty = 2.0f, .presence_penalty = 0.5f, .frequency_penalty = 0.25f},
      0.5,
      prompt,
      output};
  const Lists lists = shorten({1, 5, 3, 6, -4}, {row}, {100, 5, 1});
  EXPECT_EQ(lists.tokens(), (std::vector<int32_t>{102, 101, 103, 100, 104}));
  EXPECT_EQ(lists.candidates[1].score, 2.5f);
  EXPECT_EQ(lists.candidates[1].logit, 5);
  EXPECT_EQ(lists.candidates[2].score, 6 / 2.0f - 0.5f - 2 * 0.25f);
  EXPECT_EQ(lists.candidates[2].logit, 6);
  EXPECT_EQ(lists.top_tokens(), std::vector<int32_t>{103});
}

TEST_P(Shortlist, FindsTheTokenThatIsWanted) {
  const Lists lists = shorten({1, 5, 3, 1, 5, 3}, {}, {10, 1, 1, {12, 13}});
  EXPECT_EQ(lists.tokens(), (std::vector<int32_t>{12, no_token}));
  EXPECT_EQ(lists.candidates[0].logit, 3);
  EXPECT_EQ(lists.candidates[1].logit, -infinity);
  EXPECT_EQ(lists.top_tokens(), (std::vector<int32_t>{11, 11}));
}

TEST_P(Shortlist, OfARowWithoutADistributionIsEmpty) {
  for (const float broken : {std::nanf(""), infinity})
    for (const size_t at : {0, 7, 39}) {
      std::vector<float> logits(80, 1.0f);
      logits[at] = broken;
      const Lists lists = shorten(logits, std::vector<SamplingRow>(2), {0, 2, 2});
      EXPECT_TRUE(std::isnan(lists.log_sums[0]));
      EXPECT_EQ(lists.tokens(), (std::vector<int32_t>{no_token, no_token, 0, 1}));
      EXPECT_EQ(lists.top_tokens(), (std::vector<int32_t>{no_token, no_token, 0, 1}));
      EXPECT_NEAR(lists.log_sums[1], 1 + std::log(40.0), 1e-6) << "other rows are not touched";
    }
}

TEST_P(Shortlist, OfNothingButMinusInfinityIsStillAPart) {
  std::vector<float> logits(40, -infinity);
  Lists lists = shorten(logits, plain, {5, 2, 1});
  EXPECT_EQ(lists.log_sums[0], -infinity);
  EXPECT_EQ(lists.tokens(), (std::vector<int32_t>{5, 6}));
  for (const size_t at : {0, 33, 39}) {
    logits.assign(40, -infinity);
    logits[at] = std::nanf("");
    EXPECT_TRUE(std::isnan(shorten(logits, plain, {5}).log_sums[0]));
  }
}

TEST_P(Shortlist, OfManyTokensIsTheReferences) {
  Device reference = make_device("reference");
  const std::vector<int32_t> seen = {3, 70, 700, 1499, 5000};
  for (const int64_t part : {1, 7, 8, 17, 1024, 1500}) {
    std::vector<float> logits = Tensor::random({3, part}, DType::fp32, 5).values();
    for (float& logit : logits) logit = std::round(logit * 16);  // so that there are ties
    const SamplingRow penalised{
        {.repetition_penalty = 1.5f, .presence_penalty = 0.5f}, 0, {}, seen};
    const std::vector<SamplingRow> rows = {{}, penalised, {}};
    const Ask ask{0, std::min<int64_t>(part, 40), std::min<int64_t>(part, 5)};
    const Lists found = shorten(logits, rows, ask);
    const Lists wanted = shorten_on(reference, logits, rows, ask);
    EXPECT_EQ(found.tokens(), wanted.tokens()) << part;
    EXPECT_EQ(found.top_tokens(), wanted.top_tokens()) << part;
    for (size_t r = 0; r < rows.size(); ++r)
      EXPECT_NEAR(found.log_sums[r], wanted.log_sums[r], 1e-6) << part;
  }
}

TEST_P(Shortlist, RefusesWhatContradictsItself) {
  const std::vector<float> logits(4);
  EXPECT_THROW(shorten(logits, plain, {0, 5}), InvalidArgument);
  EXPECT_THROW(shorten(logits, plain, {0, 0}), InvalidArgument);
  EXPECT_THROW(shorten(logits, plain, {0, 1, 5}), InvalidArgument);
  EXPECT_THROW(shorten(logits, plain, {0, 1, 0, {1}}), InvalidArgument) << "rows and wanted";
}

}  // namespace
}  // namespace pecia::test
