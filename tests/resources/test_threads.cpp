// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/work/resources/threads.hpp"
#include "tests/io/expect_error.hpp"

namespace pecia::resources {
namespace {

const RankCores whole{{0, 1, 2, 3}, {0, 2, 4, 6}};  // two hardware threads each

int count(std::vector<RankCores> ranks, int rank, std::optional<double> quota = {},
          ThreadWords words = {}) {
  return choose_threads(ranks, rank, quota, words).count;
}

std::vector<int> cpus(std::vector<RankCores> ranks, int rank, ThreadWords words) {
  return choose_threads(ranks, rank, {}, words).cpus;
}

TEST(Threads, AreTheCoresOfTheRankOrItsShare) {
  EXPECT_EQ(count({whole}, 0), 4);
  EXPECT_EQ(count({whole, whole}, 1), 2);
  EXPECT_EQ(count({whole, whole, whole}, 0), 1);
  EXPECT_EQ(count(std::vector(9, whole), 0), 1);
  EXPECT_EQ(count({{{0, 1, 2}, {0, 2, 4}}, {{3}, {6}}}, 0), 3);
  EXPECT_EQ(count({{{0, 1, 2}, {0, 2, 4}}, {{3}, {6}}}, 1), 1);
  EXPECT_EQ(count({{{0, 1, 2}, {0, 2, 4}}, {{2, 3}, {4, 6}}}, 1), 2);  // half of all four
}

TEST(Threads, AreNoMoreThanTheQuotaAllows) {
  EXPECT_EQ(count({whole}, 0, 2.5), 2);
  EXPECT_EQ(count({whole}, 0, 0.5), 1);
  EXPECT_EQ(count({whole, whole}, 0, 2.0), 1);
  EXPECT_EQ(count({whole}, 0, 64.0), 4);
}

TEST(CoresOfHost, CountsSharedOnesOnceAndNoMoreThanTheQuota) {
  const std::vector<RankCores> apart{{{0, 1, 2}, {0, 2, 4}}, {{2, 3}, {4, 6}}};
  EXPECT_EQ(cores_of_host(std::vector{whole, whole, whole}, {}), 4);
  EXPECT_EQ(cores_of_host(apart, {}), 4);
  EXPECT_EQ(cores_of_host(apart, 2.5), 2);
  EXPECT_EQ(cores_of_host(apart, 0.5), 1);
  EXPECT_EQ(cores_of_host(apart, 64.0), 4);
}

TEST(Threads, AreAsManyAsTheUserSays) {
  EXPECT_EQ(count({whole}, 0, 1.0, {"7", {}}), 7);
  EXPECT_EQ(count({whole}, 0, {}, {"3,2", {}}), 3);
  for (const char* wrong : {"0", "-1", "many", "2x", "2.5", "99999999999", ","})
    test::expect_error<InputError>(
        [&] {
          count({whole}, 0, {}, {wrong, {}});
        },
        {"OMP_NUM_THREADS", wrong});
}

TEST(Threads, StayOnCoresOfTheirOwnWhereTheUserSaysSo) {
  EXPECT_EQ(cpus({whole}, 0, {}), std::vector<int>());
  EXPECT_EQ(cpus({whole}, 0, {{}, "false"}), std::vector<int>());
  for (const char* yes : {"true", "TRUE", "close", "spread,close", "master", "primary"})
    EXPECT_EQ(cpus({whole}, 0, {{}, yes}), (std::vector{0, 2, 4, 6})) << yes;
  EXPECT_EQ(cpus({whole}, 0, {"2", "true"}), (std::vector{0, 2}));
  EXPECT_EQ(cpus({whole, whole}, 1, {{}, "true"}), (std::vector{4, 6}));
  EXPECT_EQ(cpus({{{0, 1}, {0, 2}}, {{2, 3}, {4, 6}}}, 1, {{}, "true"}), (std::vector{4, 6}));
  test::expect_error<InputError>(
      [] {
        cpus({whole}, 0, {{}, "yes"});
      },
      {"OMP_PROC_BIND is 'yes'", "true, false, close"});
}

TEST(Threads, AreMovedWhereThereIsNoCoreForEach) {
  EXPECT_EQ(cpus({whole}, 0, {"5", "true"}), std::vector<int>());
  EXPECT_EQ(cpus({whole, whole}, 0, {"3", "true"}), std::vector<int>());
  EXPECT_EQ(cpus({{{0, 1, 2}, {0, 2, 4}}, {{2, 3}, {4, 6}}}, 1, {"1", "true"}),
            std::vector<int>());  // neither the same cores nor apart
}

}  // namespace
}  // namespace pecia::resources
