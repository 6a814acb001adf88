#include "lib/report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/core/build_info.hpp"
#include "lib/core/error.hpp"
#include "lib/report/atomic_file.hpp"
#include "lib/report/format.hpp"

namespace pecia::report {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::optional<double> tokens_per_s(const PhaseReport& phase) {
  if (phase.tokens == 0 || !(phase.seconds > 0)) return std::nullopt;
  return static_cast<double>(phase.tokens) / phase.seconds;
}

std::optional<double> share_of_peak(const PhaseReport& phase, std::optional<double> peak_flops) {
  if (!peak_flops || !(*peak_flops > 0) || !(phase.seconds > 0) || phase.flops == 0)
    return std::nullopt;
  return phase.flops / (phase.seconds * *peak_flops);
}

/// Of the time of all ranks; absent when none was measured.
std::optional<double> exposed_communication(const std::vector<RankReport>& ranks) {
  double exposed_s = 0, total_s = 0;
  for (const RankReport& rank : ranks) {
    exposed_s += rank.exposed_comm_s;
    total_s += rank.compute_s + rank.exposed_comm_s + rank.idle_s;
  }
  if (!(total_s > 0)) return std::nullopt;
  return exposed_s / total_s;
}

Json json_of(const std::optional<Percentiles>& values) {
  if (!values) return nullptr;
  return {{"p50", values->p50}, {"p90", values->p90}, {"p99", values->p99}};
}

Json json_of(const PhaseReport& phase, std::optional<double> peak_flops) {
  return {{"seconds", phase.seconds},
          {"tokens", phase.tokens},
          {"tokens_per_s", or_null(tokens_per_s(phase))},
          {"flops", phase.flops},
          {"share_of_peak", or_null(share_of_peak(phase, peak_flops))}};
}

Json json_of(const StageReport& stage) {
  return {{"name", stage.name},       {"kind", stage.kind},   {"count", stage.count},
          {"seconds", stage.seconds}, {"bytes", stage.bytes}, {"flops", stage.flops}};
}

Json json_of(const RankReport& rank) {
  return {{"rank", rank.rank},           {"host", rank.host},
          {"compute_s", rank.compute_s}, {"exposed_communication_s", rank.exposed_comm_s},
          {"idle_s", rank.idle_s},       {"peak_rss_bytes", rank.peak_rss_bytes}};
}

Json json_of(const LinkReport& link) {
  return {{"pattern", link.pattern},
          {"level", link.level},
          {"messages", link.messages},
          {"bytes", link.bytes}};
}

Json json_of(const Counts& counts) {
  return {{"done", counts.done},
          {"failed", counts.failed},
          {"partial", counts.partial},
          {"open", counts.open},
          {"arrived", or_null(counts.arrived)},
          {"prompt_tokens", counts.prompt_tokens},
          {"cached_tokens", counts.cached_tokens},
          {"output_tokens", counts.output_tokens}};
}

Json json_of(const KvReport& kv) {
  return {{"restored_requests", kv.restored_requests},
          {"restored_tokens", kv.restored_tokens},
          {"restore_s", kv.restore_s},
          {"kept_requests", kv.kept_requests},
          {"kept_tokens", kv.kept_tokens},
          {"kept_bytes", kv.kept_bytes},
          {"keep_s", kv.keep_s},
          {"not_worth_keeping", kv.not_worth_keeping}};
}

std::string requests_text(int64_t requests) {
  return fmt::format("{} request{}", requests, requests == 1 ? "" : "s");
}

Json json_of(const Startup& startup) {
  Json json{{"main_unix_s", startup.main_unix_s()}};
  for (const StartPhase& phase : startup.phases()) json[phase.name + "_s"] = phase.seconds;
  return json;
}

template <typename T>
Json array_of(const std::vector<T>& items) {
  Json array = Json::array();
  for (const T& item : items) array.push_back(json_of(item));
  return array;
}

}  // namespace

std::optional<Percentiles> percentiles(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  for (const double value : values) PECIA_CHECK(!std::isnan(value), "a percentile of NaN");
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double position = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(position);
    const size_t above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], position - std::floor(position));
  };
  return Percentiles{at(0.50), at(0.90), at(0.99)};
}

Json to_json(const RunReport& report) {
  const BuildInfo& build = build_info();
  Json phases = Json::object();
  for (const PhaseReport& phase : report.phases)
    phases[phase.name] = json_of(phase, report.peak_flops);
  return {{"schema", "pecia.report/1"},
          {"build",
           {{"version", build.version},
            {"commit", build.commit},
            {"type", build.build_type},
            {"compiler", build.compiler}}},
          {"job", report.job},
          {"model", report.model},
          {"machine", report.machine},
          {"topology", report.topology},
          {"grid", report.grid},
          {"modes", report.modes},
          {"counts", json_of(report.counts)},
          {"kv", json_of(report.kv)},
          {"seconds", report.seconds},
          {"startup", report.startup ? json_of(*report.startup) : Json()},
          {"phases", phases},
          {"ttft_s", json_of(percentiles(report.ttft_s))},
          {"tbt_s", json_of(percentiles(report.tbt_s))},
          {"exposed_communication", or_null(exposed_communication(report.ranks))},
          {"peak_flops", or_null(report.peak_flops)},
          {"stages", array_of(report.stages)},
          {"ranks", array_of(report.ranks)},
          {"links", array_of(report.links)},
          {"predicted", report.predicted},
          {"errors", report.errors}};
}

void write_report(const std::filesystem::path& path, const RunReport& report) {
  write_atomically(path,
                   to_json(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string kept_line(const KvReport& kv) {
  const std::string left =
      fmt::format("{} {} cheaper to read again", requests_text(kv.not_worth_keeping),
                  kv.not_worth_keeping == 1 ? "is" : "are");
  if (kv.kept_requests == 0)
    return kv.not_worth_keeping == 0 ? "" : "kept no keys and values: " + left;
  return fmt::format("kept the keys and values of {} ({} in {}){}", requests_text(kv.kept_requests),
                     format_bytes(kv.kept_bytes), format_duration(kv.keep_s),
                     kv.not_worth_keeping == 0 ? "" : "; " + left);
}

std::string last_line(const RunReport& report, const std::filesystem::path& path) {
  std::string line = fmt::format("{} done, {} failed", report.counts.done, report.counts.failed);
  if (const int64_t unfinished = report.counts.partial + report.counts.open; unfinished > 0) {
    line += fmt::format(", {} to continue", unfinished);
    if (report.counts.arrived) line += fmt::format(", {} arrived", *report.counts.arrived);
  }
  line += " in " + format_duration(report.seconds);
  if (report.kv.restored_requests > 0)
    line += fmt::format(" · restored {} tokens of {}",
                        format_count(static_cast<double>(report.kv.restored_tokens)),
                        requests_text(report.kv.restored_requests));
  for (const PhaseReport& phase : report.phases) {
    const auto speed = tokens_per_s(phase);
    if (!speed) continue;
    line += fmt::format(" · {} {} tok/s", phase.name, format_count(*speed));
    if (const auto share = share_of_peak(phase, report.peak_flops))
      line += fmt::format(" ({} of peak)", format_percent(*share));
  }
  if (const auto exposed = exposed_communication(report.ranks))
    line += " · exposed communication " + format_percent(*exposed);
  return line + " · " + path.string();
}

}  // namespace pecia::report
