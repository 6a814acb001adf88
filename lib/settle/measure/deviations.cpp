// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/deviations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/base/report/format.hpp"
#include "lib/settle/measure/rates_cache.hpp"

namespace pecia::measure {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> number_of(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

Json json_of(const Deviation& deviation) {
  return {{"began_unix_s", deviation.began_unix_s},
          {"what", deviation.what},
          {"by", deviation.by},
          {"seconds", deviation.seconds},
          {"prefill", or_null(deviation.prefill)},
          {"decode", or_null(deviation.decode)}};
}

std::optional<Deviation> parse(const std::string& line) try {
  const Json json = parse_json<Json>(line);
  return Deviation{json.at("began_unix_s"),
                   json.at("what"),
                   json.at("by"),
                   json.at("seconds"),
                   number_of(json.at("prefill")),
                   number_of(json.at("decode"))};
} catch (const Json::exception&) {
  return {};
}

std::optional<double> median_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

std::optional<std::filesystem::path> deviations_path() {
  const auto rates = rates_cache_path();
  if (!rates) return {};
  return rates->parent_path() / "deviations.jsonl";
}

std::vector<Deviation> read_deviations(const std::filesystem::path& path) {
  std::vector<Deviation> found;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (auto deviation = parse(line)) found.push_back(std::move(*deviation));
  return found;
}

void add_deviation(const std::filesystem::path& path, const Deviation& deviation) {
  std::vector<Deviation> all = read_deviations(path);
  all.push_back(deviation);
  std::string text;
  const size_t first = all.size() - std::min(all.size(), most_deviations);
  for (size_t i = first; i < all.size(); ++i) text += json_text(json_of(all[i])) + "\n";
  report::write_atomically(path, text);
}

std::string deviations_text(const std::vector<Deviation>& deviations) {
  std::vector<double> seconds, prefill, decode;
  for (const Deviation& one : deviations) {
    seconds.push_back(std::abs(one.seconds));
    if (one.prefill) prefill.push_back(std::abs(*one.prefill));
    if (one.decode) decode.push_back(std::abs(*one.decode));
  }
  if (seconds.empty()) return "";
  std::string text = fmt::format("seconds off by {} in the median of {} run{}",
                                 report::format_percent(*median_of(seconds)), seconds.size(),
                                 seconds.size() == 1 ? "" : "s");
  if (const auto median = median_of(prefill))
    text += ", prefill " + report::format_percent(*median);
  if (const auto median = median_of(decode)) text += ", decode " + report::format_percent(*median);
  return text;
}

}  // namespace pecia::measure
