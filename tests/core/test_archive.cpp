// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/archive.hpp"

namespace pecia {
namespace {

struct Inner {
  int32_t number = 0;
  std::string text;
  template <typename A>
  void visit(A& archive) {
    archive(number), archive(text);
  }
};
struct Outer {
  std::vector<int64_t> numbers;
  std::vector<Inner> inner;
  template <typename A>
  void visit(A& archive) {
    archive(numbers), visit_all(archive, inner);
  }
};

TEST(Archive, GivesBackWhatWasWritten) {
  const Outer value{{1, -2, 3}, {{7, "seven"}, {0, ""}}};

  const auto back = from_bytes<Outer>(to_bytes(value));

  EXPECT_EQ(back.numbers, value.numbers);
  ASSERT_EQ(back.inner.size(), 2u);
  EXPECT_EQ(back.inner[0].number, 7);
  EXPECT_EQ(back.inner[0].text, "seven");
}

TEST(Archive, RefusesTooFewAndTooManyBytes) {
  auto bytes = to_bytes(Outer{{1, 2}, {{7, "seven"}}});
  bytes.push_back({});
  EXPECT_THROW(from_bytes<Outer>(bytes), InvalidArgument);
  bytes.resize(bytes.size() - 2);
  EXPECT_THROW(from_bytes<Outer>(bytes), InvalidArgument);
}

}  // namespace
}  // namespace pecia
