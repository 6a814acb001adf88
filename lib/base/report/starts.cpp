// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/starts.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/base/core/files.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/format.hpp"

namespace pecia::report {
namespace {

/// "9.4 core-hours", "48 GPU-seconds".
std::string device_time(double seconds, const char* device) {
  constexpr double hour_s = 3600;
  return seconds < hour_s / 10 ? fmt::format("{} {}-seconds", format_count(seconds), device)
                               : fmt::format("{} {}-hours", format_count(seconds / hour_s), device);
}

StartRecord parsed(const nlohmann::json& json) {
  StartRecord start;
  json.at("began_unix_s").get_to(start.began_unix_s);
  json.at("seconds").get_to(start.seconds);
  json.at("done").get_to(start.done);
  json.at("failed").get_to(start.failed);
  json.at("prompt_tokens").get_to(start.prompt_tokens);
  json.at("output_tokens").get_to(start.output_tokens);
  json.at("cores").get_to(start.cores);
  json.at("gpus").get_to(start.gpus);
  start.hosts = json.value("hosts", int64_t{0});
  return start;
}

}  // namespace

StartRecord sum_of(const std::vector<StartRecord>& starts) {
  StartRecord sum;
  if (!starts.empty()) sum.began_unix_s = starts.front().began_unix_s;
  for (const StartRecord& start : starts) {
    sum.seconds += start.seconds;
    sum.done += start.done;
    sum.failed += start.failed;
    sum.prompt_tokens += start.prompt_tokens;
    sum.output_tokens += start.output_tokens;
    sum.cores = start.cores;
    sum.gpus = start.gpus;
    sum.hosts = start.hosts;
  }
  return sum;
}

double device_seconds(const std::vector<StartRecord>& starts) {
  double sum = 0;
  for (const StartRecord& start : starts)
    sum += start.seconds * static_cast<double>(start.gpus > 0 ? start.gpus : start.cores);
  return sum;
}

std::optional<double> host_seconds(const std::vector<StartRecord>& starts) {
  double sum = 0;
  for (const StartRecord& start : starts) {
    if (start.hosts == 0) return {};
    sum += start.seconds * static_cast<double>(start.hosts);
  }
  return sum;
}

nlohmann::ordered_json to_json(const StartRecord& start) {
  return {{"began_unix_s", start.began_unix_s},
          {"seconds", start.seconds},
          {"done", start.done},
          {"failed", start.failed},
          {"prompt_tokens", start.prompt_tokens},
          {"output_tokens", start.output_tokens},
          {"cores", start.cores},
          {"gpus", start.gpus},
          {"hosts", start.hosts}};
}

std::vector<StartRecord> read_starts(const std::filesystem::path& progress_file) try {
  const auto progress = parse_json<nlohmann::json>(text_of_file(progress_file).value_or(""));
  std::vector<StartRecord> starts;
  for (const auto& start : progress.at("starts")) starts.push_back(parsed(start));
  return starts;
} catch (const nlohmann::json::exception&) {
  return {};
}

std::string text_of(const StartRecord& start, double device_seconds, const std::string& more) {
  return fmt::format("{} done, {} failed{} in {} ({}) · {} tokens read, {} written", start.done,
                     start.failed, more, format_duration(start.seconds),
                     device_time(device_seconds, start.gpus > 0 ? "GPU" : "core"),
                     format_count(static_cast<double>(start.prompt_tokens)),
                     format_count(static_cast<double>(start.output_tokens)));
}

}  // namespace pecia::report
