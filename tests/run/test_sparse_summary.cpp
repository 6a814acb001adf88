// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/run/sparse_summary.hpp"

namespace pecia::run {
namespace {

using Json = nlohmann::ordered_json;
using parallel::Geometry;

resources::Resources with_csa(int cp, double drop, std::optional<int> levels = {}) {
  resources::Resources resources;
  resources.cp = cp;
  resources.sparse = parallel::SparseSetting{{Geometry::disjoint, drop}, levels, {}};
  return resources;
}

/// Servers of `per_server` ranks, two to a rack.
std::vector<comm::RackServerGpu> places(int ranks, int per_server) {
  std::vector<comm::RackServerGpu> found;
  for (int rank = 0; rank < ranks; ++rank) {
    const int server = rank / per_server;
    found.push_back(
        {"rack" + std::to_string(server / 2), std::to_string(server), rank % per_server});
  }
  return found;
}

TEST(SparseText, SaysRanksAndSharesOfLevels) {
  EXPECT_EQ(sparse_text({}, places(4, 2)), "");
  EXPECT_EQ(sparse_text(with_csa(4, 0.4), places(4, 4)),
            "csa: levels of 1 and 4 ranks keep 100 and 60 %");
  EXPECT_EQ(sparse_text(with_csa(8, 0.4), places(8, 2)),
            "csa: levels of 1, 2, 4 and 8 ranks keep 100, 60, 30 and 15 %");
  EXPECT_EQ(sparse_text(with_csa(8, 0.25, 3), places(8, 2)),
            "csa: levels of 1, 2 and 8 ranks keep 100, 75 and 37.5 %");
  EXPECT_EQ(sparse_text(with_csa(4, 0), places(4, 4)),
            "csa: levels of 1 and 4 ranks keep everything");
  EXPECT_EQ(sparse_text(with_csa(1, 0.4), places(2, 2)),
            "csa: one rank reads each prompt, so nothing is dropped");
  EXPECT_EQ(sparse_text(with_csa(4, 0.4, 1), places(4, 2)),
            "csa: one level, where each rank's tokens see each other alone");
  resources::Resources by_layer = with_csa(4, 0.4);
  by_layer.sparse->layer_drops = {{0}, {0.2}, {0.6}, {0}};
  EXPECT_EQ(sparse_text(by_layer, places(4, 4)),
            "csa: levels of 1 and 4 ranks keep 100 and 60 % in the mean of the layers");
  resources::Resources star = with_csa(4, 0, 1);
  star.sparse->first_tokens = 512;
  EXPECT_EQ(sparse_text(star, places(4, 2)),
            "csa: one level, where each rank's tokens see each other and the first 512");
}

TEST(SparseText, IsOfTheFirstReplicasRing) {
  resources::Resources resources = with_csa(2, 0.5);
  resources.dp = 2, resources.tp = 2;
  // Ranks 0 and 2 are the ring: one on each server.
  EXPECT_EQ(sparse_text(resources, places(8, 2)), "csa: levels of 1 and 2 ranks keep 100 and 50 %");
}

TEST(SparseText, IsOfTheRanksOfTpWhereNoneShareTokens) {
  resources::Resources resources = with_csa(1, 0.4);
  resources.dp = 2, resources.tp = 4;
  EXPECT_EQ(sparse_text(resources, places(8, 2)),
            "csa: levels of 1, 2 and 4 ranks keep 100, 60 and 30 %");
}

TEST(SparseJson, SumsRanksAndCountsPassesOfReplicasOnce) {
  const parallel::Levels levels{2, {{0, 0}}};
  const std::vector<comm::LinkLevel> links{comm::LinkLevel::server, comm::LinkLevel::rack};
  attention::SparseTotals rank = attention::SparseTotals::of(levels, 5);
  rank.add_pass({{{0, 100, 0}, {0, 100, 64}}});
  attention::LayerCount dense{{{10, 0, 0, 100}, {20, 7, 3, 100}}, 100, {0, 10, 0}, 30, {0, 40, 0}};
  attention::LayerCount sparse{{{10, 0, 0, 100}, {8, 4, 1, 33}}, 100, {0, 5, 0}, 30, {0, 40, 0}};
  for (const int64_t layer : {0, 4}) rank.add(layer, dense);  // layer 3 has a window
  for (const int64_t layer : {1, 2}) rank.add(layer, sparse);
  rank.add({6, 2.5e9}, 0, links);
  resources::Resources resources = with_csa(2, 0.75);
  resources.dp = 2;

  const Json found = sparse_json(resources, {rank, rank, rank, rank});
  EXPECT_EQ(found.at("geometry"), "disjoint");
  EXPECT_EQ(found.at("drop"), 0.75);
  EXPECT_EQ(found.at("passes"), 2);
  EXPECT_EQ(found.at("rows"), 400);
  EXPECT_EQ(found.at("levels"), Json::parse(R"([
    {"level": 1, "ranks_per_segment": 1, "kept_share": 1.0, "attention_pairs": 160,
     "token_bytes": 0, "output_bytes": 0},
    {"level": 2, "ranks_per_segment": 2, "kept_share": 0.665, "attention_pairs": 224,
     "token_bytes": 88, "output_bytes": 32}])"));
  EXPECT_EQ(found.at("layers"), Json::parse(R"([
    {"first": 0, "last": 0, "kept_share": [1.0, 1.0]},
    {"first": 1, "last": 2, "kept_share": [1.0, 0.33]},
    {"first": 3, "last": 3, "kept_share": null},
    {"first": 4, "last": 4, "kept_share": [1.0, 1.0]}])"));
  EXPECT_EQ(found.at("attention_pairs"), 384);
  EXPECT_EQ(found.at("dense_attention_pairs"), 480);
  EXPECT_EQ(found.at("importance_pairs").dump(), "10000000000");
  EXPECT_EQ(found.at("sent_bytes"), 4 * 36);
  EXPECT_EQ(found.at("dense_sent_bytes"), 4 * 160);
  EXPECT_EQ(found.at("importance_bytes"), 24);
  EXPECT_EQ(found.at("sent_bytes_by_link"),
            Json::parse(R"({"server": 0, "rack": 144, "system": 0})"));
  EXPECT_EQ(found.at("dense_sent_bytes_by_link").at("rack"), 640);
}

TEST(SparseJson, HasNoSharesWithoutPasses) {
  const auto totals = attention::SparseTotals::of(parallel::Levels(1, {}), 2);
  const Json found = sparse_json(with_csa(1, 0.5), {totals});
  EXPECT_EQ(found.at("passes"), 0);
  EXPECT_TRUE(found.at("levels").at(0).at("kept_share").is_null());
  EXPECT_EQ(found.at("layers").size(), 1u);
  EXPECT_EQ(found.at("sent_bytes"), 0);
}

}  // namespace
}  // namespace pecia::run
