// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/link_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pecia::app {
namespace {

using Json = nlohmann::ordered_json;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string pair_text(const Json& link) {
  return fmt::format("{} → {}", link["from"].get<int>(), link["to"].get<int>());
}

const Json& slowest(const std::vector<Json>& links) {
  const auto slower = [](const Json& a, const Json& b) {
    return a["bandwidth_gb_s"].get<double>() < b["bandwidth_gb_s"].get<double>();
  };
  return *std::min_element(links.begin(), links.end(), slower);
}

std::vector<double> column(const std::vector<Json>& links, const char* key) {
  std::vector<double> values;
  for (const Json& link : links) values.push_back(link[key].get<double>());
  return values;
}

std::string alone_text(const Json& level) {
  const auto pairs = level["pairs"].get<std::vector<Json>>();
  const auto latencies = column(pairs, "latency_us");
  const Json& worst = slowest(pairs);
  return fmt::format("{:<7} {:>5}  {:>9.2f} {:>9.2f}  {:>8.2f} {:>8.2f}  {}\n",
                     level["level"].get<std::string>(), pairs.size(), median(latencies),
                     *std::max_element(latencies.begin(), latencies.end()),
                     median(column(pairs, "bandwidth_gb_s")), worst["bandwidth_gb_s"].get<double>(),
                     pair_text(worst));
}

/// The links of rings by level.
std::string rings_text(const Json& rings) {
  std::string text = fmt::format("rings: {}, all links at once; a step takes {:.2f} µs\n",
                                 rings.size(), rings[0]["step_us"].get<double>());
  for (const char* level : comm::link_level_names) {
    std::vector<Json> links;
    for (const Json& ring : rings)
      for (const Json& link : ring["links"])
        if (link["level"] == level) links.push_back(link);
    if (links.empty()) continue;
    const Json& worst = slowest(links);
    text += fmt::format("{:<7} {:>5}  {:>9} {:>9}  {:>8.2f} {:>8.2f}  {}\n", level, links.size(),
                        "", "", median(column(links, "bandwidth_gb_s")),
                        worst["bandwidth_gb_s"].get<double>(), pair_text(worst));
  }
  return text;
}

}  // namespace

nlohmann::ordered_json links_json(std::span<const comm::RackServerGpu> places,
                                  std::span<const cluster::PairFigures> pairs,
                                  std::span<const cluster::RingFigures> rings,
                                  const cluster::MeasureOptions& options) {
  const auto level_of = [&](int from, int to) {
    return comm::link_level(places[from], places[to]);
  };
  Json levels = Json::array(), of_rings = Json::array();
  for (int level = 0; level < comm::num_link_levels; ++level) {
    Json of_level = Json::array();
    for (const cluster::PairFigures& pair : pairs)
      if (static_cast<int>(level_of(pair.ranks.from, pair.ranks.to)) == level)
        of_level.push_back({{"from", pair.ranks.from},
                            {"to", pair.ranks.to},
                            {"latency_us", pair.latency_us},
                            {"bandwidth_gb_s", pair.bandwidth_gb_s}});
    if (!of_level.empty())
      levels.push_back({{"level", comm::link_level_names[level]}, {"pairs", of_level}});
  }
  for (const cluster::RingFigures& ring : rings) {
    Json links = Json::array();
    for (size_t at = 0; at < ring.ranks.size(); ++at) {
      const int from = ring.ranks[at], to = ring.ranks[(at + 1) % ring.ranks.size()];
      links.push_back({{"from", from},
                       {"to", to},
                       {"level", comm::link_level_names[static_cast<int>(level_of(from, to))]},
                       {"bandwidth_gb_s", ring.bandwidth_gb_s[at]}});
    }
    of_rings.push_back({{"ranks", ring.ranks}, {"step_us", ring.step_us}, {"links", links}});
  }
  return {{"large_bytes", options.large_bytes}, {"levels", levels}, {"rings", of_rings}};
}

std::string links_text(const nlohmann::ordered_json& links) {
  if (links["levels"].empty()) return "one rank has no links to measure\n";
  std::string text = fmt::format(
      "links, host memory, one pair at a time; latency of 8 bytes, bandwidth of {} MiB\n"
      "{:<7} {:>5}  {:>9} {:>9}  {:>8} {:>8}  {}\n",
      links["large_bytes"].get<int64_t>() >> 20, "level", "pairs", "µs median", "worst",
      "GB/s med.", "worst", "slowest");
  for (const auto& level : links["levels"]) text += alone_text(level);
  if (!links["rings"].empty()) text += rings_text(links["rings"]);
  return text;
}

}  // namespace pecia::app
