// SPDX-License-Identifier: Apache-2.0
/// Shortlists of the parts of a vocabulary against the ops on whole rows.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lib/base/core/random.hpp"
#include "lib/engine/execute/shortlists.hpp"
#include "lib/ranks/parallel/sharding.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::execute {
namespace {

using kernels::SamplingParams;
using kernels::SamplingRow;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int64_t vocab = 203;

/// Logits of `rows` rows on a grid of quarters, so that there are ties within and across parts.
std::vector<float> coarse_logits(int64_t rows, uint64_t seed) {
  std::vector<float> logits(rows * vocab);
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(std::floor(40 * uniform(seed, i))) / 4;
  return logits;
}

schedule::LogProbs room(int64_t rows, int64_t num_top, bool sampled) {
  schedule::LogProbs tile;
  if (sampled) tile.tokens.resize(rows);
  tile.logprobs.resize(rows);
  tile.top_tokens.resize(rows * num_top);
  tile.top_logprobs.resize(rows * num_top);
  return tile;
}

void expect_same(const schedule::LogProbs& found, const schedule::LogProbs& wanted) {
  EXPECT_EQ(found.tokens, wanted.tokens);
  EXPECT_EQ(found.top_tokens, wanted.top_tokens);
  EXPECT_TRUE(test::all_close(found.logprobs, wanted.logprobs, 2e-6));
  EXPECT_TRUE(test::all_close(found.top_logprobs, wanted.top_logprobs, 2e-6));
}

class EveryCut : public testing::TestWithParam<int> {
 protected:
  TensorView view(std::vector<float>& logits) {
    return {logits.data(), DType::fp32, {static_cast<int64_t>(logits.size()) / vocab, vocab}};
  }

  /// What the ranks have after the exchange.
  std::vector<Shortlists> shorten(std::vector<float> logits, const ShortlistShape& shape,
                                  std::span<const SamplingRow> rows,
                                  std::span<const int32_t> wanted = {}) {
    std::vector<Shortlists> parts;
    const int64_t count = static_cast<int64_t>(logits.size()) / vocab;
    for (int rank = 0; rank < GetParam(); ++rank) {
      const auto columns = parallel::row_part({0, vocab}, GetParam(), rank);
      std::vector<float> part;
      for (int64_t r = 0; r < count; ++r)
        part.insert(part.end(), logits.begin() + r * vocab + columns.begin,
                    logits.begin() + r * vocab + columns.end);
      Shortlists mine(shape, count);
      compute_.backend->shortlist({.logits = {part.data(), DType::fp32, {count, columns.size()}},
                                   .first_token = columns.begin,
                                   .rows = rows,
                                   .wanted = wanted,
                                   .num_candidates = shape.num_candidates,
                                   .num_top = shape.num_top,
                                   .log_sums = mine.log_sums,
                                   .candidates = mine.candidates,
                                   .tops = mine.tops},
                                  *compute_.stream);
      parts.emplace_back(shape, mine.bytes());
    }
    return parts;
  }

  schedule::LogProbs whole(std::vector<float> logits, std::span<const SamplingRow> rows,
                           int64_t num_top) {
    schedule::LogProbs tile = room(static_cast<int64_t>(rows.size()), num_top, true);
    compute_.backend->sample({.logits = view(logits),
                              .rows = rows,
                              .num_top = num_top,
                              .tokens = tile.tokens,
                              .token_logprobs = tile.logprobs,
                              .top_tokens = tile.top_tokens,
                              .top_logprobs = tile.top_logprobs},
                             *compute_.stream);
    return tile;
  }

  schedule::LogProbs by_parts(const std::vector<float>& logits, std::span<const SamplingRow> rows,
                              const ShortlistShape& shape) {
    schedule::LogProbs tile = room(static_cast<int64_t>(rows.size()), shape.num_top, true);
    sample(shorten(logits, shape, rows), rows, compute_, workspace_, tile);
    return tile;
  }

  test::CpuCompute compute_;
  device::Buffer workspace_;
};
INSTANTIATE_TEST_SUITE_P(Parts, EveryCut, testing::Values(2, 3, 4, 8));

TEST_P(EveryCut, ChoosesWhatTheWholeRowsWould) {
  const std::vector<int32_t> prompt = {0, 5, 100, 202}, output = {7, 7, 101, 150};
  const SamplingParams choices[] = {
      {},
      {.repetition_penalty = 1.3f, .presence_penalty = 0.5f, .frequency_penalty = 0.25f},
      {.temperature = 0.8f, .top_k = 6},
      {.temperature = 1.5f, .top_k = 6, .top_p = 0.7f, .min_p = 0.1f},
      {.temperature = 1.5f, .top_k = 3, .repetition_penalty = 1.3f, .presence_penalty = 0.5f}};
  std::vector<SamplingRow> rows;
  for (const SamplingParams& params : choices)
    for (int i = 0; i < 40; ++i) rows.push_back({params, uniform(9, i), prompt, output});
  const auto logits = coarse_logits(static_cast<int64_t>(rows.size()), 3);
  for (const int64_t num_top : {0, 4}) {
    SCOPED_TRACE(num_top);
    expect_same(by_parts(logits, rows, {6, num_top}), whole(logits, rows, num_top));
  }
}

TEST_P(EveryCut, BreaksTiesByIdAcrossParts) {
  const std::vector<float> logits(vocab, 1.0f);
  const SamplingRow of_five{{.temperature = 1, .top_k = 5}, 0.999, {}, {}};
  EXPECT_EQ(by_parts(logits, std::vector<SamplingRow>(1), {1, 5}).tokens[0], 0);
  EXPECT_EQ(by_parts(logits, {&of_five, 1}, {5, 5}).tokens[0], 4);
  EXPECT_EQ(by_parts(logits, {&of_five, 1}, {5, 5}).top_tokens,
            (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST_P(EveryCut, RowsWithoutADistributionChooseNothingAndTouchNoOthers) {
  for (const float broken : {std::nanf(""), infinity})
    for (const int64_t at : {int64_t{0}, vocab / 2, vocab - 1}) {
      std::vector<float> logits = coarse_logits(3, 4);
      logits[vocab + at] = broken;
      const std::vector<SamplingRow> rows(3);
      const schedule::LogProbs found = by_parts(logits, rows, {2, 2});
      EXPECT_EQ(found.tokens[1], kernels::no_token);
      EXPECT_TRUE(std::isnan(found.logprobs[1]) && std::isnan(found.top_logprobs[3]));
      expect_same(found, whole(logits, rows, 2));
    }
  const std::vector<float> nothing(vocab, -infinity);
  EXPECT_EQ(by_parts(nothing, std::vector<SamplingRow>(1), {1, 0}).tokens[0], kernels::no_token);
}

TEST_P(EveryCut, APartOfNothingButMinusInfinityIsLeftOut) {
  std::vector<float> logits = coarse_logits(1, 6);
  const auto last = parallel::row_part({0, vocab}, GetParam(), GetParam() - 1);
  std::fill(logits.begin() + last.begin, logits.end(), -infinity);
  const std::vector<SamplingRow> rows(1);
  expect_same(by_parts(logits, rows, {1, 3}), whole(logits, rows, 3));
}

TEST_P(EveryCut, ScoresAsTheWholeRowsWould) {
  std::vector<float> logits = coarse_logits(5, 8);
  logits[3 * vocab + 9] = -infinity;
  logits[4 * vocab + 9] = std::nanf("");
  const std::vector<int32_t> wanted = {0, 202, 101, 9, 5};
  for (const int64_t num_top : {0, 3}) {
    schedule::LogProbs found = room(5, num_top, false), expected = found;
    score(shorten(logits, {1, num_top}, {}, wanted), found);
    std::vector<float> copy = logits;
    compute_.backend->log_probs({.logits = view(copy),
                                 .tokens = wanted,
                                 .num_top = num_top,
                                 .token_logprobs = expected.logprobs,
                                 .top_tokens = expected.top_tokens,
                                 .top_logprobs = expected.top_logprobs},
                                *compute_.stream);
    expect_same(found, expected);
    EXPECT_EQ(found.logprobs[3], -infinity);
  }
}

TEST(ShortlistShape, IsForRowsThatNeedFewTokens) {
  const auto candidates = [](const SamplingParams& params, int64_t num_top = 0) {
    const auto shape = shortlist_shape(params, num_top, 400, 4);
    return shape ? shape->num_candidates : 0;
  };
  EXPECT_EQ(candidates({}), 1);
  EXPECT_EQ(candidates({.top_k = 7, .repetition_penalty = 1.5f}), 1) << "greedy all the same";
  EXPECT_EQ(candidates({.temperature = 1, .top_k = 7, .top_p = 0.5f}), 7);
  EXPECT_EQ(candidates({.temperature = 1}), 0);
  EXPECT_EQ(candidates({.temperature = 1, .top_p = 0.5f}), 0);
  EXPECT_EQ(candidates({.temperature = 1, .min_p = 0.5f}), 0);
  EXPECT_EQ(candidates({}, -1), 0) << "the whole vocabulary is asked for";
  // 100 logits of a part are 400 bytes; 8 + 12 · 32 = 392, 8 + 12 · 33 = 404.
  EXPECT_EQ(candidates({.temperature = 1, .top_k = 32}), 32);
  EXPECT_EQ(candidates({.temperature = 1, .top_k = 33}), 0);
  EXPECT_EQ(candidates({}, 47), 1);
  EXPECT_EQ(candidates({}, 48), 0);
  EXPECT_FALSE(shortlist_shape({}, 0, 400, 1)) << "nothing is cut";
}

}  // namespace
}  // namespace pecia::execute
