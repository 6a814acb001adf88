// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/kept_peak.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/base/report/startup.hpp"
#include "lib/files/disk/strict_json.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "lib/settle/measure/rates_cache.hpp"

namespace pecia::measure {
namespace {

using PeakJson = nlohmann::ordered_json;

constexpr const char* peak_schema = "pecia.peak/1";
constexpr double kept_for_s = 7 * 24 * 3600.0;  // a peak of a crowded hour is not believed for ever

/// What a peak depends on. Collective over `world`.
std::string peak_key(comm::Communicator& world, const attention::Compute& compute, DType weights) {
  return fmt::format("{} · weights {} · {}", ranks_key(world, compute), name_of(weights),
                     build_info().version);
}

std::optional<std::filesystem::path> peak_path(const std::string& key) {
  const auto rates = rates_cache_path();
  if (!rates) return {};
  return rates->parent_path() / fmt::format("peak-{:016x}.json", std::hash<std::string>()(key));
}

PeakJson json_of_rate(const report::MeasuredRate& rate) {
  return {{"best", rate.best},
          {"median", rate.median},
          {"least", rate.least},
          {"windows", rate.windows},
          {"window_s", rate.window_s}};
}

report::MeasuredRate rate_in(const nlohmann::json& json) {
  const report::MeasuredRate rate{json.at("best"), json.at("median"), json.at("least"),
                                  json.at("windows"), json.at("window_s")};
  if (!(rate.best > 0) || !std::isfinite(rate.best)) fail<InputError>("a rate of {}", rate.best);
  return rate;
}

std::string text_of_peak(const std::string& key, const report::PeakReport& peak) {
  PeakJson file{{"schema", peak_schema},
                {"key", key},
                {"unix_s", report::unix_time()},
                {"operands", peak.operands},
                {"instructions", peak.instructions},
                {"how", peak.how},
                {"flops", json_of_rate(peak.start)},
                {"not_measured", peak.not_measured},
                {"bandwidth", json_of_rate(peak.bandwidth)},
                {"bandwidth_how", peak.bandwidth_how}};
  return json_text(file, 2) + "\n";
}

/// Absent where the text is damaged, old or of another key.
std::optional<report::PeakReport> peak_in(const std::string& key, const std::string& text) try {
  const nlohmann::json file = io::parse_strict_json("a kept peak", text);
  const double age_s = report::unix_time() - file.at("unix_s").get<double>();
  if (file.at("schema") != peak_schema || file.at("key") != key || !(age_s < kept_for_s)) return {};
  return report::PeakReport{.operands = file.at("operands"),
                            .instructions = file.at("instructions"),
                            .how = file.at("how"),
                            .start = rate_in(file.at("flops")),
                            .not_measured = file.at("not_measured"),
                            .bandwidth = rate_in(file.at("bandwidth")),
                            .bandwidth_how = file.at("bandwidth_how"),
                            .kept = true};
} catch (const std::exception&) {  // also thrown by JSON's accessors
  return {};
}

std::string text_of_file(const std::optional<std::filesystem::path>& path) {
  if (!path) return "";
  std::ifstream in(*path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : "";
}

}  // namespace

report::PeakReport peak_of_ranks(comm::Communicator& world, const attention::Compute& compute,
                                 DType weights, int64_t cache_bytes) {
  const std::string key = comm::of_first(world, peak_key(world, compute, weights));
  const std::string text =
      comm::of_first(world, world.rank() == 0 ? text_of_file(peak_path(key)) : std::string());
  if (auto kept = peak_in(key, text)) return *kept;
  return measure_peak(world, compute, weights, cache_bytes);
}

void settle_peak(comm::Communicator& world, const attention::Compute& compute, DType weights,
                 report::PeakReport& peak) {
  if (peak.kept) return;
  measure_peak_again(world, compute, weights, peak);
  const std::string key = comm::of_first(world, peak_key(world, compute, weights));
  report::PeakReport better = peak;
  if (peak.end && peak.end->best > peak.start.best) better.start = *peak.end;
  const auto path = peak_path(key);
  if (world.rank() == 0 && path) report::write_atomically(*path, text_of_peak(key, better));
}

}  // namespace pecia::measure
