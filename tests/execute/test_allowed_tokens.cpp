// SPDX-License-Identifier: Apache-2.0
/// Rows of answers with a shape keep the logits of allowed tokens alone, whatever part of the
/// vocabulary they are of.

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "lib/core/error.hpp"
#include "lib/device/device.hpp"
#include "lib/execute/allowed_tokens.hpp"

namespace pecia::execute {
namespace {

constexpr int64_t vocab = 10;
constexpr float none = -std::numeric_limits<float>::infinity();

/// Allows the successor of the last token, and the one after it; token 9 fits nowhere.
class Counting : public grammar::Matcher {
 public:
  bool accept(int32_t token) override {
    if (token == 9) return false;
    last_ = token;
    return true;
  }
  int64_t allow(std::span<uint32_t> words) override {
    words[0] = last_ >= 7 ? 0 : 0b11u << (last_ + 1);
    return last_ >= 7 ? 0 : 2;
  }
  bool is_complete() const override { return false; }

 private:
  int32_t last_ = 0;
};

struct AllowedRows : testing::Test {
  AllowedRows() {
    for (const int64_t sequence : {3, 5}) allowed.begin(sequence, std::make_unique<Counting>());
  }
  void find(int64_t sequence, const std::vector<int32_t>& answer) {
    allowed.start({{sequence, answer}}, compute);
    allowed.wait(compute);
  }
  /// Rows of these sequences with the logits of tokens from `first` on, restricted.
  std::vector<float> restricted(const std::vector<int64_t>& sequences, int64_t first,
                                int64_t width) {
    std::vector<float> logits(sequences.size() * width);
    std::iota(logits.begin(), logits.end(), 1.0f);
    allowed.restrict({logits.data(), DType::fp32, {std::ssize(sequences), width}}, sequences, first,
                     compute);
    return logits;
  }

  std::unique_ptr<device::Device> device = device::make_host_device(3);
  std::unique_ptr<device::Stream> stream = device->make_stream();
  std::unique_ptr<kernels::Backend> backend = kernels::make_reference_backend();
  report::Recorder recorder{report::TraceDetail::off};
  context::Compute compute{*device, *stream, *backend, recorder};
  AllowedTokens allowed{vocab};
};

TEST_F(AllowedRows, KeepAllowedTokensAlone) {
  find(3, {});
  find(5, {2, 4});
  EXPECT_EQ(allowed.count(3), 2);
  EXPECT_EQ(restricted({3, 4, 5}, 0, 10),
            (std::vector<float>{none, 2,    3,    none, none, none, none, none, none, none,  //
                                11,   12,   13,   14,   15,   16,   17,   18,   19,   20,    //
                                none, none, none, none, none, 26,   27,   none, none, none}));
}

TEST_F(AllowedRows, AreOfSeveralAnswersAtOnce) {
  const std::vector<int32_t> one = {1}, two = {2, 4};
  allowed.start({{3, one}, {4, one}, {5, two}}, compute);
  allowed.wait(compute);
  EXPECT_EQ(restricted({3, 5}, 3, 3), (std::vector<float>{1, none, none, none, none, 6}));
  EXPECT_NO_THROW(allowed.start({}, compute)) << "nothing of the last pass is left";
}

/// Fails on every thread that asks it.
class Failing : public Counting {
 public:
  int64_t allow(std::span<uint32_t>) override { fail<InvalidArgument>("no words"); }
};

TEST_F(AllowedRows, ThatCannotBeFoundFailOnTheCallingThread) {
  allowed.begin(5, std::make_unique<Failing>());
  const std::vector<int32_t> answer = {1};
  allowed.start({{3, answer}, {5, answer}}, compute);
  EXPECT_THROW(allowed.wait(compute), InvalidArgument);
  EXPECT_NO_THROW(allowed.start({{3, answer}}, compute)) << "nothing is left";
}

TEST_F(AllowedRows, MayHaveAPartOfTheVocabulary) {
  find(5, {2, 4});
  EXPECT_EQ(restricted({5}, 4, 3), (std::vector<float>{none, 2, 3}));
  EXPECT_EQ(restricted({5}, 0, 4), (std::vector<float>{none, none, none, none}));
}

TEST_F(AllowedRows, GoOnWhereTheAnswerIs) {
  find(3, {1});
  find(3, {1, 3});
  EXPECT_EQ(restricted({3}, 4, 3), (std::vector<float>{1, 2, none}));
}

TEST_F(AllowedRows, StayAsTheyAreWhereNothingFits) {
  find(3, {7});
  EXPECT_EQ(allowed.count(3), 0);
  EXPECT_EQ(restricted({3}, 0, 2), (std::vector<float>{1, 2}));
}

TEST_F(AllowedRows, AreForgotten) {
  EXPECT_TRUE(allowed.has(3));
  allowed.forget(3);
  EXPECT_FALSE(allowed.has(3));
  const std::vector<int32_t> answer = {1};
  allowed.start({{3, answer}}, compute);
  allowed.wait(compute);
  EXPECT_EQ(restricted({3}, 0, 2), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace pecia::execute
