// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/call_watch.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

/// What the watch says, and how often.
struct Said {
  std::promise<std::string> first;
  std::future<std::string> words = first.get_future();
  std::atomic<int> times = 0;

  CallWatch::Late late() {
    return [this](const std::string& text) {
      if (++times == 1) first.set_value(text);
    };
  }
};

TEST(CallWatch, NamesTheCallThatDoesNotReturnAndNoOther) {
  Said said;
  const std::string all = "all ranks", two = "ranks 0 and 2";
  {
    CallWatch watch(20ms, said.late());
    for (int number = 1; number < 100; ++number)
      const auto call = watch.begin("quick", number, all);
    const auto call = watch.begin("send_receive", 100, two);
    ASSERT_EQ(said.words.wait_for(60s), std::future_status::ready);
  }
  EXPECT_EQ(said.words.get(),
            "send_receive #100 with ranks 0 and 2: the call has not returned for 0.02 s, since "
            "other ranks do not take part");
  EXPECT_EQ(said.times, 1);
}

TEST(CallWatch, IsQuietBetweenCalls) {
  Said quiet, other;
  const std::string all = "all ranks";
  CallWatch idle(20ms, quiet.late()), watch(100ms, other.late());
  { const auto call = idle.begin("done", 1, all); }
  const auto call = watch.begin("late", 1, all);
  ASSERT_EQ(other.words.wait_for(60s), std::future_status::ready);  // five times the idle one's
  EXPECT_EQ(quiet.times, 0);
}

TEST(CallWatch, GoesWithItsOwnerAndTakesOneCallAtATime) {
  Said said;
  const std::string all = "all ranks";
  CallWatch watch(1h, said.late()), none(0s, said.late());
  const auto call = watch.begin("one", 1, all);
  EXPECT_THROW((void)watch.begin("two", 2, all), InvalidArgument);
  const auto other = none.begin("two", 2, all);
  EXPECT_EQ(said.times, 0);
}

}  // namespace
}  // namespace pecia::comm
