// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "lib/model/attention/token_importance.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

TEST(SampledRows, AreTheLastOnesAndOthersAtEqualDistances) {
  EXPECT_EQ(sampled_rows(10, 2, 3), (std::vector<int64_t>{2, 4, 6, 8, 9}));
  EXPECT_EQ(sampled_rows(3, 2, 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(sampled_rows(1, 2, 3), (std::vector<int64_t>{0}));
  EXPECT_EQ(sampled_rows(0, 2, 3), std::vector<int64_t>());
}

constexpr int64_t heads = 4, kv_heads = 2, head_dim = 8, tokens = 9;
constexpr int64_t first_of_second = 5;  // two sequences lie one after the other

class Weighed {
 public:
  /// `broken`: a row whose queries and log-sums are NaN, or −1.
  explicit Weighed(int64_t broken)
      : cache_({1, kv_heads, head_dim, DType::fp32}, tokens, *compute_.device),
        steps_(compute_, cache_, heads, {0}, kernels::RowInvariant::no),
        importance_(compute_, cache_, steps_),
        q_(test::random_floats(tokens * heads * head_dim, 1)),
        k_(test::random_floats(tokens * kv_heads * head_dim, 2)),
        lse_(test::random_floats(tokens * heads, 3)) {
    if (broken >= 0) {
      constexpr float nan = std::numeric_limits<float>::quiet_NaN();
      std::fill_n(q_.begin() + broken * heads * head_dim, heads * head_dim, nan);
      std::fill_n(lse_.begin() + broken * heads, heads, nan);
    }
    std::vector<int64_t> slots(tokens);
    std::iota(slots.begin(), slots.end(), int64_t{0});
    steps_.store(0, view(k_, kv_heads), view(k_, kv_heads), slots);
    std::vector<TokenImportance::Sequence> sequences;
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>(0, first_of_second), std::pair(first_of_second, tokens)}) {
      TokenImportance::Sequence& sequence = sequences.emplace_back();
      sequence.positions.emplace_back(end - begin);
      std::iota(sequence.positions[0].begin(), sequence.positions[0].end(), int64_t{0});
      sequence.first_row = begin;
      steps_.add_runs(sequence.runs, {{0, end - begin}}, {{begin, end}}, steps_.shape(), 0,
                      tokens * head_dim);
    }
    importance_.begin_pass(*alone_, std::move(sequences));
    EXPECT_FALSE(importance_.known());
    const TensorView lse(static_cast<void*>(lse_.data()), DType::fp32, {tokens, heads});
    importance_.weigh(0, 0, view(q_, heads), {view(q_, heads), lse});
    EXPECT_TRUE(importance_.known());
  }

  std::vector<float> found(size_t sequence, int64_t kv_head) const {
    const int64_t count = importance_.tokens(sequence);
    const float* const of = importance_.numbers().as<const float>() +
                            importance_.first_number(sequence) + kv_head * count;
    return {of, of + count};
  }

  /// The definition: every row is a sample.
  std::vector<float> expected(size_t sequence, int64_t kv_head) const {
    const int64_t begin = sequence == 0 ? 0 : first_of_second;
    const int64_t end = sequence == 0 ? first_of_second : tokens;
    std::vector<float> sums;
    for (int64_t key = begin; key < end; ++key) {
      double sum = 0;
      for (int64_t row = key; row < end; ++row)
        for (int64_t head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
          double score = 0;
          for (int64_t d = 0; d < head_dim; ++d)
            score += double{q_[(row * heads + head) * head_dim + d]} *
                     k_[(key * kv_heads + kv_head) * head_dim + d];
          sum += std::exp(score / std::sqrt(double{head_dim}) - lse_[row * heads + head]);
        }
      sums.push_back(static_cast<float>(sum));
    }
    return sums;
  }

 private:
  static TensorView view(std::vector<float>& data, int64_t count) {
    return {static_cast<void*>(data.data()), DType::fp32, {tokens, count, head_dim}};
  }

  std::unique_ptr<comm::Communicator> alone_ = comm::make_null_communicator();
  test::CpuCompute compute_{1, kernels::make_reference_backend()};
  KvCache cache_;
  AttentionSteps steps_;
  TokenImportance importance_;
  std::vector<float> q_, k_, lse_;
};

TEST(TokenImportance, IsTheAttentionThatSamplesPay) {
  const Weighed weighed(-1);
  for (const size_t sequence : {0, 1})
    for (int64_t head = 0; head < kv_heads; ++head)
      EXPECT_TRUE(test::all_close(weighed.found(sequence, head), weighed.expected(sequence, head),
                                  0, 1e-5));
}

/// One row of the second sequence is NaN. It does not see that sequence's last key.
TEST(TokenImportance, IsNeverNaN) {
  const Weighed weighed(tokens - 2);
  for (int64_t head = 0; head < kv_heads; ++head) {
    EXPECT_TRUE(test::all_close(weighed.found(0, head), weighed.expected(0, head), 0, 1e-5));
    for (const float each : weighed.found(1, head)) EXPECT_GE(each, 0.0f);
    EXPECT_FLOAT_EQ(weighed.found(1, head).back(), weighed.expected(1, head).back());
  }
}

}  // namespace
}  // namespace pecia::attention
