// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/pecia/link_tables.hpp"

namespace pecia::app {
namespace {

const std::vector<comm::RackServerGpu> places{
    {"a", "n1", 0}, {"a", "n1", 1}, {"a", "n2", 0}, {"b", "n3", 0}};
const std::vector<cluster::PairFigures> pairs{
    {{0, 1}, 0.5, 12.0}, {{0, 2}, 2.0, 5.0}, {{0, 3}, 9.0, 1.0}};
const std::vector<cluster::RingFigures> rings{{{0, 1, 2, 3}, 21.0, {11.0, 4.0, 0.75, 0.5}}};

TEST(LinksJson, IsByLevel) {
  const auto links = links_json(places, pairs, rings, {});
  EXPECT_EQ(links["large_bytes"], 8 << 20);
  ASSERT_EQ(links["levels"].size(), 3u);
  EXPECT_EQ(links["levels"][1]["level"], "rack");
  EXPECT_EQ(links["levels"][1]["pairs"].dump(),
            R"([{"from":0,"to":2,"latency_us":2.0,"bandwidth_gb_s":5.0}])");
  EXPECT_EQ(links["rings"][0]["step_us"], 21.0);
  EXPECT_EQ(links["rings"][0]["links"][3].dump(),
            R"({"from":3,"to":0,"level":"system","bandwidth_gb_s":0.5})");
}

TEST(LinksJson, LeavesOutLevelsWithoutPairs) {
  const auto links = links_json(places, std::span(pairs).last(1), {}, {});
  ASSERT_EQ(links["levels"].size(), 1u);
  EXPECT_EQ(links["levels"][0]["level"], "system");
  EXPECT_TRUE(links["rings"].empty());
}

TEST(LinksText, NamesTheSlowestOfEachLevel) {
  const std::string text = links_text(links_json(places, pairs, rings, {}));
  EXPECT_NE(text.find("bandwidth of 8 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("rack        1       2.00      2.00      5.00     5.00  0 → 2\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rings: 1, all links at once; a step takes 21.00 µs\n"), std::string::npos);
  EXPECT_NE(text.find("system      2                           0.75     0.50  3 → 0\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(links_text(links_json({}, {}, {}, {})), "one rank has no links to measure\n");
}

}  // namespace
}  // namespace pecia::app
