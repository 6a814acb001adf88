// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/paper.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace pecia::simulation::papers {
namespace {

using Json = nlohmann::ordered_json;

/// Six digits: figures that differ in the last bits of a sum are the same text.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 5);
  return std::stod(fmt::format("{:.6g}", std::round(value / unit) * unit));
}

Json number(std::optional<double> value) {
  return value ? Json(rounded(*value)) : Json(nullptr);
}

Json json_of(const Row& row) {
  Json json{{"what", row.what},
            {"setting", row.setting},
            {"unit", row.unit},
            {"published", number(row.published)},
            {"published_to", number(row.published_to)},
            {"ours", number(row.ours)},
            {"error", number(row.error())},
            {"allowed", number(row.allowed)},
            {"how", name_of(row.how)},
            {"fitted", row.fitted}};
  if (!row.note.empty()) json["note"] = row.note;
  if (!row.command.empty()) json["command"] = row.command;
  if (!row.measured_on.empty()) json["measured_on"] = row.measured_on;
  if (!row.page.empty()) json["page"] = row.page;
  if (!row.plot.empty()) json["plot"] = {{"name", row.plot}, {"line", row.line}, {"x", row.x}};
  return json;
}

Json json_of(const Paper& paper) {
  Json json{{"name", paper.name}, {"title", paper.title}, {"machine", paper.machine}};
  for (const char* key : {"constants", "rows", "claims", "plots"}) json[key] = Json::array();
  for (const Constant& each : paper.constants)
    json["constants"].push_back({{"name", each.name},
                                 {"value", rounded(each.value)},
                                 {"unit", each.unit},
                                 {"fitted_to", each.rows},
                                 {"largest_share", number(each.largest_share)}});
  for (const Row& row : paper.rows) json["rows"].push_back(json_of(row));
  for (const Claim& claim : paper.claims)
    json["claims"].push_back({{"text", claim.text}, {"holds", claim.holds}});
  for (const Plot& plot : paper.plots)
    json["plots"].push_back({{"name", plot.name},
                             {"x_axis", plot.x_axis},
                             {"y_axis", plot.y_axis},
                             {"log_x", plot.log_x},
                             {"log_y", plot.log_y}});
  return json;
}

}  // namespace

std::optional<double> Row::error() const {
  if (!published || !ours) return {};
  if (published_to && *ours > *published)
    return *ours > *published_to ? *ours / *published_to - 1 : 0;
  return *ours / *published - 1;
}

std::string_view name_of(How how) {
  switch (how) {
    case How::simulated:
      return "simulated";
    case How::counted:
      return "counted";
    case How::measured:
      return "measured";
  }
  return "?";
}

std::vector<std::string> wrong(const std::vector<Paper>& papers) {
  std::vector<std::string> found;
  for (const Paper& paper : papers) {
    for (const Row& row : paper.rows)
      if (const auto error = row.error();
          row.allowed && error && !(std::abs(*error) <= *row.allowed))
        found.push_back(fmt::format(
            "{}: {}, {}: {:.4g} {} here, {:.4g} published, {:+.1f} % off; {:.0f} % may be",
            paper.name, row.what, row.setting, *row.ours, row.unit, *row.published, 100 * *error,
            100 * *row.allowed));
    for (const Claim& claim : paper.claims)
      if (!claim.holds)
        found.push_back(fmt::format("{}: does not hold: {}", paper.name, claim.text));
  }
  return found;
}

Json to_json(const std::vector<Paper>& papers) {
  Json json{{"schema", "pecia.papers/1"}, {"papers", Json::array()}};
  for (const Paper& paper : papers) json["papers"].push_back(json_of(paper));
  return json;
}

}  // namespace pecia::simulation::papers
