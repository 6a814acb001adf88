// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/work/job/units.hpp"

namespace pecia::job {
namespace {

TEST(ParseBytes, KnowsBothKindsOfUnits) {
  EXPECT_EQ(parse_bytes("12GiB"), int64_t{12} << 30);
  EXPECT_EQ(parse_bytes("500MB"), 500'000'000);
  EXPECT_EQ(parse_bytes("1.3 GB"), 1'300'000'000);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536);
}

TEST(ParseBytes, KnowsSlurmsUnits) {
  EXPECT_EQ(parse_bytes("12G"), int64_t{12} << 30);
  EXPECT_EQ(parse_bytes("500M"), int64_t{500} << 20);
  EXPECT_EQ(parse_bytes("2T"), int64_t{2} << 40);
  EXPECT_EQ(parse_bytes("64K"), 65536);
}

TEST(ParseBytes, RefusesTheRest) {
  for (const char* bad : {"", "GiB", "12g", "12gib", "-1", "1.5", "1e3", "9000000TiB", "1 ", "nan",
                          "0x10", "1GiB2", " 1"})
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
}

TEST(ParseSeconds, AddsItsParts) {
  EXPECT_EQ(parse_seconds("60s"), 60);
  EXPECT_EQ(parse_seconds("10min"), 600);
  EXPECT_EQ(parse_seconds("1h30m"), 5400);
  EXPECT_EQ(parse_seconds("1d2h3min4s"), 93784);
  EXPECT_EQ(parse_seconds("90"), 90);
  EXPECT_EQ(parse_seconds("0.5h"), 1800);
  EXPECT_EQ(parse_seconds("50ms"), 0.05);
  EXPECT_EQ(parse_seconds("1s500ms"), 1.5);
}

TEST(ParseSeconds, KnowsSlurmsTimes) {
  EXPECT_EQ(parse_seconds("1:30:00"), 5400);
  EXPECT_EQ(parse_seconds("01:30:00"), 5400);
  EXPECT_EQ(parse_seconds("36:00:00"), 36 * 3600);
  EXPECT_EQ(parse_seconds("90:00"), 5400) << "minutes and seconds";
  EXPECT_EQ(parse_seconds("2-00:00:00"), 2 * 86400);
  EXPECT_EQ(parse_seconds("2-12"), 2 * 86400 + 12 * 3600);
  EXPECT_EQ(parse_seconds("0-1:30"), 5400);
  EXPECT_EQ(parse_seconds("1-23:59:59"), 2 * 86400 - 1);
}

TEST(ParseSeconds, RefusesTheRest) {
  for (const char* bad : {"",         "s",         "-5s",
                          "1m1h",     "1h1h",      "5 s",
                          "1h30",     "1e3s",      "inf",
                          "5w",       ":30",       "1:",
                          "1:60",     "1:60:00",   "1:30:60",
                          "1:2:3:4",  "-1:30",     "1:-30",
                          "2-",       "-2",        "2-24",
                          "2-1-1",    "1-1:1:1:1", "1.5:00",
                          "1:30:00s", "1:30h",     "99999999999999999999:00",
                          "2-+1"})
    EXPECT_EQ(parse_seconds(bad), std::nullopt) << bad;
}

TEST(FormatSeconds, IsReadBackExactly) {
  EXPECT_EQ(format_seconds(60), "60s");
  EXPECT_EQ(format_seconds(5400), "1h30m");
  EXPECT_EQ(format_seconds(3601), "1h1s");
  EXPECT_EQ(format_seconds(0.1), "0.1s");
  for (const double seconds : {0.0, 1e-7, 0.1, 59.0, 119.0, 120.0, 3600.0, 86399.0, 90061.25, 3e7})
    EXPECT_EQ(parse_seconds(format_seconds(seconds)), seconds) << seconds;
}

}  // namespace
}  // namespace pecia::job
