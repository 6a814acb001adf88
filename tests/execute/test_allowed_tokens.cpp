// SPDX-License-Identifier: Apache-2.0
/// Rows of answers with a shape keep the logits of allowed tokens alone, whatever part of the
/// vocabulary they are of, on a CPU and on a device that counts as a GPU.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <limits>
#include <numeric>
#include <thread>

#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/engine/execute/allowed_tokens.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::execute {
namespace {

constexpr int64_t vocab = 10;
constexpr float none = -std::numeric_limits<float>::infinity();

/// Allows the successor of the last token, and the one after it; token 9 fits nowhere.
class Counting : public grammar::Matcher {
 public:
  bool accept(int32_t token) override {
    if (token == 9) return false;
    answer_.push_back(token);
    return true;
  }
  void take_back(int64_t tokens) override { answer_.resize(answer_.size() - tokens); }
  int64_t allow(std::span<uint32_t> words) override {
    const int32_t last = answer_.empty() ? 0 : answer_.back();
    words[0] = last >= 7 ? 0 : 0b11u << (last + 1);
    return last >= 7 ? 0 : 2;
  }
  bool is_complete() const override { return false; }

 private:
  std::vector<int32_t> answer_;
};

enum class Place { cpu, gpu };

test::OwnedCompute compute_at(Place place) {
  if (place == Place::cpu) return {device::make_host_device(3), kernels::make_reference_backend()};
  const device::DeviceInfo info{"separate", 90, 1, "", ""};
  return {test::make_separate_device({.info = info}), test::make_separate_backend()};
}

struct AllowedRows : testing::TestWithParam<Place> {
  AllowedRows() {
    for (const int64_t sequence : {3, 5}) allowed.begin(sequence, std::make_unique<Counting>());
  }
  void find(int64_t sequence, const std::vector<int32_t>& answer, int32_t drafted = 0) {
    allowed.start({{sequence, answer, drafted}}, compute);
    allowed.wait(compute);
  }
  /// Rows of these sequences with the logits of tokens from `first` on, restricted.
  std::vector<float> restricted(const std::vector<int64_t>& sequences, int64_t first,
                                int64_t width) {
    std::vector<AllowedTokens::Place> places;
    for (const int64_t sequence : sequences) places.push_back({sequence});
    return restricted(places, first, width);
  }
  std::vector<float> restricted(const std::vector<AllowedTokens::Place>& places, int64_t first,
                                int64_t width) {
    std::vector<float> logits(places.size() * width);
    std::iota(logits.begin(), logits.end(), 1.0f);
    const auto bytes = static_cast<int64_t>(logits.size() * sizeof(float));
    device::Buffer there(compute.device, device::Memory::device);
    const TensorView rows = there.tensor(DType::fp32, {std::ssize(places), width});
    compute.device.copy(rows.data(), logits.data(), bytes, compute.stream);
    allowed.restrict(rows, places, first, compute);
    compute.device.copy(logits.data(), rows.data(), bytes, compute.stream);
    return logits;
  }

  test::OwnedCompute owned = compute_at(GetParam());
  attention::Compute compute = owned;
  AllowedTokens allowed{vocab};
};

TEST_P(AllowedRows, KeepAllowedTokensAlone) {
  find(3, {});
  find(5, {2, 4});
  EXPECT_EQ(allowed.count({3}), 2);
  EXPECT_EQ(restricted(std::vector<int64_t>{3, 4, 5}, 0, 10),
            (std::vector<float>{none, 2,    3,    none, none, none, none, none, none, none,  //
                                11,   12,   13,   14,   15,   16,   17,   18,   19,   20,    //
                                none, none, none, none, none, 26,   27,   none, none, none}));
}

TEST_P(AllowedRows, AreOfSeveralAnswersAtOnce) {
  const std::vector<int32_t> one = {1}, two = {2, 4};
  allowed.start({{3, one}, {4, one}, {5, two}}, compute);
  allowed.wait(compute);
  EXPECT_EQ(restricted(std::vector<int64_t>{3, 5}, 3, 3),
            (std::vector<float>{1, none, none, none, none, 6}));
  EXPECT_NO_THROW(allowed.start({}, compute)) << "nothing of the last pass is left";
}

/// Fails on every thread that asks it.
class Failing : public Counting {
 public:
  int64_t allow(std::span<uint32_t>) override { fail<InvalidArgument>("no words"); }
};

TEST_P(AllowedRows, ThatCannotBeFoundFailOnTheCallingThread) {
  allowed.begin(5, std::make_unique<Failing>());
  const std::vector<int32_t> answer = {1};
  allowed.start({{3, answer}, {5, answer}}, compute);
  EXPECT_THROW(allowed.wait(compute), InvalidArgument);
  EXPECT_NO_THROW(allowed.start({{3, answer}}, compute)) << "nothing is left";
}

/// Says which thread asked it.
class Telling : public Counting {
 public:
  explicit Telling(std::promise<std::thread::id> thread) : thread_(std::move(thread)) {}
  int64_t allow(std::span<uint32_t> words) override {
    thread_.set_value(std::this_thread::get_id());
    return Counting::allow(words);
  }

 private:
  std::promise<std::thread::id> thread_;
};

TEST_P(AllowedRows, AreFoundBesideThePassOfAGpuAndAfterThatOfACpu) {
  std::promise<std::thread::id> telling;
  std::future<std::thread::id> thread = telling.get_future();
  allowed.begin(5, std::make_unique<Telling>(std::move(telling)));
  const std::vector<int32_t> answer = {2, 4};
  allowed.start({{5, answer}}, compute);
  if (GetParam() == Place::gpu) {
    ASSERT_EQ(thread.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    EXPECT_NE(thread.get(), std::this_thread::get_id());
  } else {
    EXPECT_EQ(thread.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  }
  EXPECT_THROW(allowed.start({{5, answer}}, compute), Error) << "the last pass is not over";
  allowed.wait(compute);
  EXPECT_EQ(restricted(std::vector<int64_t>{5}, 4, 3), (std::vector<float>{none, 2, 3}));
}

TEST_P(AllowedRows, MayHaveAPartOfTheVocabulary) {
  find(5, {2, 4});
  EXPECT_EQ(restricted(std::vector<int64_t>{5}, 4, 3), (std::vector<float>{none, 2, 3}));
  EXPECT_EQ(restricted(std::vector<int64_t>{5}, 0, 4),
            (std::vector<float>{none, none, none, none}));
}

TEST_P(AllowedRows, GoOnWhereTheAnswerIs) {
  find(3, {1});
  find(3, {1, 3});
  EXPECT_EQ(restricted(std::vector<int64_t>{3}, 4, 3), (std::vector<float>{1, 2, none}));
}

TEST_P(AllowedRows, AreFoundAfterEachDraftedTokenAsIfItWereTheAnswers) {
  find(3, {1, 2, 5}, 2);
  EXPECT_EQ(restricted({{3, 0}, {3, 1}, {3, 2}}, 2, 6),
            (std::vector<float>{1, 2, none, none, none, none,  //
                                none, 8, 9, none, none, none,  //
                                none, none, none, none, 17, 18}));
  find(3, {1, 3});
  EXPECT_EQ(restricted(std::vector<int64_t>{3}, 4, 3), (std::vector<float>{1, 2, none}))
      << "the drafted tokens were no part of the answer";
  find(3, {1, 3, 9, 4}, 2);
  EXPECT_EQ(allowed.count({3, 1}), 0) << "the drafted token does not fit";
  EXPECT_EQ(allowed.count({3, 2}), 0);
}

TEST_P(AllowedRows, StayAsTheyAreWhereNothingFits) {
  find(3, {7});
  EXPECT_EQ(allowed.count({3}), 0);
  EXPECT_EQ(restricted(std::vector<int64_t>{3}, 0, 2), (std::vector<float>{1, 2}));
}

TEST_P(AllowedRows, AreForgotten) {
  EXPECT_TRUE(allowed.has(3));
  allowed.forget(3);
  EXPECT_FALSE(allowed.has(3));
  const std::vector<int32_t> answer = {1};
  allowed.start({{3, answer}}, compute);
  allowed.wait(compute);
  EXPECT_EQ(restricted(std::vector<int64_t>{3}, 0, 2), (std::vector<float>{1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Places, AllowedRows, testing::Values(Place::cpu, Place::gpu),
                         [](const auto& param) {
                           return param.param == Place::cpu ? "cpu" : "gpu";
                         });

}  // namespace
}  // namespace pecia::execute
