// SPDX-License-Identifier: Apache-2.0
#include "lib/run/sparse_summary.hpp"

#include <fmt/format.h>

#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia::run {
namespace {

using Json = nlohmann::ordered_json;
using attention::SparseTotals;

/// "1, 2 and 8".
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

/// The levels of the first ring of the first replica.
parallel::Levels first_levels(const resources::Resources& resources,
                              const std::vector<comm::RackServerGpu>& places) {
  const auto ring = resources.level_places(places);
  return parallel::levels_of(comm::server_of_rank(ring), comm::rack_of_rank(ring),
                             resources.sparse->levels);
}

std::string_view geometry_name(parallel::Geometry geometry) {
  switch (geometry) {
    case parallel::Geometry::disjoint:
      return "disjoint";
    case parallel::Geometry::nested:
      return "nested";
  }
  return "?";
}

/// Whole where the number is; JSON would else show large ones as powers of ten.
Json whole(double number) {
  return std::llround(number);
}

/// With four digits; null of no tokens.
Json share(int64_t kept, int64_t tokens) {
  if (tokens == 0) return nullptr;
  return std::round(1e4 * static_cast<double>(kept) / static_cast<double>(tokens)) / 1e4;
}

Json by_link_json(const attention::LinkBytes& bytes) {
  Json links = Json::object();
  for (size_t link = 0; link < bytes.size(); ++link)
    links[comm::link_level_names[link]] = whole(bytes[link]);
  return links;
}

Json levels_json(const SparseTotals& totals) {
  int64_t tokens = 0;
  for (const SparseTotals::Layer& layer : totals.layers) tokens += layer.tokens;
  Json levels = Json::array();
  for (size_t i = 0; i < totals.levels.size(); ++i) {
    const attention::LevelCount& level = totals.levels[i];
    levels.push_back({{"level", i + 1},
                      {"ranks_per_segment", totals.segment_ranks.at(i)},
                      {"kept_share", share(level.kept, tokens)},
                      {"attention_pairs", whole(level.pairs)},
                      {"token_bytes", level.token_bytes},
                      {"output_bytes", level.output_bytes}});
  }
  return levels;
}

/// Runs of layers that keep the same shares, by level.
Json layers_json(const SparseTotals& totals) {
  Json runs = Json::array();
  for (size_t layer = 0; layer < totals.layers.size(); ++layer) {
    const SparseTotals::Layer& of = totals.layers[layer];
    Json shares;
    if (of.tokens > 0)
      for (const int64_t kept : of.kept) shares.push_back(share(kept, of.tokens));
    if (runs.empty() || runs.back()["kept_share"] != shares)
      runs.push_back({{"first", layer}, {"last", layer}, {"kept_share", shares}});
    else
      runs.back()["last"] = layer;
  }
  return runs;
}

/// By layer with attention and KV head. Layers that choose nothing have zeros.
Json shares_json(attention::TokenShares shares) {
  Json layers = Json::array();
  const int64_t places = shares.heads > 0 ? std::ssize(shares.all) / shares.heads : 0;
  for (int64_t place = 0; place < places; ++place) {
    Json& heads = layers.emplace_back(Json::array());
    for (int64_t head = 0; head < shares.heads; ++head) {
      const attention::HeadShares& of = shares.at(place, head);
      heads.push_back({{"spread", of.spread()}, {"lost", of.lost()}});
    }
  }
  return layers;
}

}  // namespace

std::string sparse_text(const resources::Resources& resources,
                        const std::vector<comm::RackServerGpu>& places) {
  if (!resources.sparse) return "";
  if (resources.level_parts() == 1) return "csa: one rank reads each prompt, so nothing is dropped";
  const parallel::Levels levels = first_levels(resources, places);
  const std::optional<int64_t> first = resources.sparse->first_tokens;
  if (levels.count() == 1)
    return fmt::format("csa: one level, where each rank's tokens see each other{}",
                       first.value_or(0) > 0 ? fmt::format(" and the first {}", *first) : " alone");
  std::vector<std::string> ranks, shares;
  for (int level = 1; level <= levels.count(); ++level) {
    ranks.push_back(std::to_string(levels.most_ranks(level)));
    shares.push_back(fmt::format("{:.3g}", 100 * resources.sparse->rule.kept(level)));
  }
  if (resources.sparse->rule.drop == 0)
    return fmt::format("csa: levels of {} ranks keep everything", listed(ranks));
  return fmt::format("csa: levels of {} ranks keep {} %{}", listed(ranks), listed(shares),
                     resources.sparse->layer_drops.empty() ? "" : " in the mean of the layers");
}

Json sparse_json(const resources::Resources& resources, const std::vector<SparseTotals>& ranks) {
  PECIA_CHECK(resources.sparse.has_value(), "a report of sparse attention that is off");
  SparseTotals all;
  int64_t passes = 0, rows = 0;
  const auto of_replica = static_cast<size_t>(resources.degrees().ranks());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    all += ranks[rank];
    if (rank % of_replica == 0) passes += ranks[rank].passes, rows += ranks[rank].rows;
  }
  const parallel::LevelRule& rule = resources.sparse->rule;
  Json sparse = {{"geometry", std::string(geometry_name(rule.geometry))},
                 {"drop", rule.drop},
                 {"levels", levels_json(all)},
                 {"layers", layers_json(all)},
                 {"passes", passes},
                 {"rows", rows},
                 {"attention_pairs", whole(all.pairs())},
                 {"dense_attention_pairs", whole(all.dense_pairs)},
                 {"importance_pairs", whole(all.importance_pairs)},
                 {"sent_bytes", whole(all.sent_bytes())},
                 {"dense_sent_bytes", whole(all.dense_bytes())},
                 {"importance_bytes", all.importance_bytes},
                 {"sent_bytes_by_link", by_link_json(all.by_link)},
                 {"dense_sent_bytes_by_link", by_link_json(all.dense_by_link)}};
  if (resources.sparse->counts_shares) sparse["token_shares"] = shares_json(all.shares);
  return sparse;
}

}  // namespace pecia::run
