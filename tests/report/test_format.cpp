// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lib/base/report/format.hpp"

namespace pecia::report {
namespace {

TEST(FormatDuration, ReadsAsPeopleSayIt) {
  EXPECT_EQ(format_duration(0), "0 ms");
  EXPECT_EQ(format_duration(0.42), "420 ms");
  EXPECT_EQ(format_duration(4.2), "4.2 s");
  EXPECT_EQ(format_duration(42), "42 s");
  EXPECT_EQ(format_duration(11 * 60 + 42), "11 min 42 s");
  EXPECT_EQ(format_duration(3 * 3600 + 7 * 60 + 20), "3 h 7 min");
  EXPECT_EQ(format_duration(52 * 3600), "2 d 4 h");
}

TEST(FormatDuration, RoundsIntoTheNextUnitAndNeverPrintsSixty) {
  EXPECT_EQ(format_duration(0.9996), "1.0 s");
  EXPECT_EQ(format_duration(9.96), "10 s");
  EXPECT_EQ(format_duration(59.6), "1 min 0 s");
  EXPECT_EQ(format_duration(3599.7), "1 h 0 min");
  EXPECT_EQ(format_duration(86399), "1 d 0 h");
}

TEST(FormatDuration, SaysThatItDoesNotKnow) {
  EXPECT_EQ(format_duration(NAN), "?");
  EXPECT_EQ(format_duration(INFINITY), "?");
  EXPECT_EQ(format_duration(-1), "?");
}

TEST(FormatCount, KeepsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(3.42), "3.4");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.0k");
  EXPECT_EQ(format_count(41234), "41.2k");
  EXPECT_EQ(format_count(412345), "412k");
  EXPECT_EQ(format_count(7.9e6), "7.9M");
  EXPECT_EQ(format_count(1.5e13), "15.0T");
}

TEST(FormatCount, RoundsIntoTheNextUnit) {
  EXPECT_EQ(format_count(99.96), "100");
  EXPECT_EQ(format_count(999.6), "1.0k");
  EXPECT_EQ(format_count(999'700), "1.0M");
  EXPECT_EQ(format_count(NAN), "?");
  EXPECT_EQ(format_count(-3), "?");
}

TEST(FormatBytes, CountsInPowersOfTwo) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{15} << 30), "15.0 GiB");
  EXPECT_EQ(format_bytes((int64_t{1} << 30) - 1), "1.0 GiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()), "8.0 EiB");
  EXPECT_EQ(format_bytes(-1), "?");
}

TEST(FormatPercent, HasADecimalBelowTen) {
  EXPECT_EQ(format_percent(0), "0 %");
  EXPECT_EQ(format_percent(0.031), "3.1 %");
  EXPECT_EQ(format_percent(0.0996), "10 %");
  EXPECT_EQ(format_percent(0.58), "58 %");
  EXPECT_EQ(format_percent(NAN), "?");
}

}  // namespace
}  // namespace pecia::report
