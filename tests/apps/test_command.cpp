#include <gtest/gtest.h>

#include "apps/pecia/command.hpp"
#include "lib/core/error.hpp"

namespace pecia::app {
namespace {

TEST(Ranges, JoinNeighbours) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(Reported, TurnsExceptionsIntoExitCodes) {
  EXPECT_EQ(reported([] { return 75; }), 75);
  EXPECT_EQ(reported([]() -> int { fail<InputError>("input"); }), 2);
  EXPECT_EQ(reported([]() -> int { fail<Unsupported>("absent"); }), 2);
  EXPECT_EQ(reported([]() -> int { fail<SystemError>("disk"); }), 1);
}

TEST(Dump, SurvivesTextThatIsNotUtf8) {
  EXPECT_EQ(dump({{"path", "a\xff"}}, -1), "{\"path\":\"a\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace pecia::app
