// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/base/report/format.hpp"

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

/// FLOP/s of all ranks together.
std::optional<double> speed_of(const PhaseReport& phase) {
  if (!(phase.seconds > 0) || phase.flops == 0) return std::nullopt;
  return phase.flops / phase.seconds;
}

std::optional<double> share_of_peak(const PhaseReport& phase, const std::optional<UsedPeak>& peak) {
  const auto speed = speed_of(phase);
  if (!peak || !speed) return std::nullopt;
  return *speed / peak->flops;
}

/// Share of the time of all ranks; absent when no time was measured.
std::optional<double> exposed_communication(const std::vector<RankReport>& ranks) {
  double exposed_s = 0, total_s = 0;
  for (const RankReport& rank : ranks) {
    exposed_s += rank.exposed_comm_s;
    total_s += rank.compute_s + rank.exposed_comm_s + rank.idle_s;
  }
  if (!(total_s > 0)) return std::nullopt;
  return exposed_s / total_s;
}

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json json_of(const MachineReport& machine) {
  return {{"cpu", machine.cpu},
          {"cores_of_a_rank", machine.cores_of_a_rank},
          {"memory_bytes_of_a_host", machine.memory_bytes_of_a_host},
          {"gpu", or_null(machine.gpu)},
          {"isa", or_null(machine.isa)}};
}

Json json_of(const GridReport& grid) {
  Json json{{"dp", grid.dp}, {"cp", grid.cp}, {"sp", grid.sp}, {"tp", grid.tp}};
  if (grid.ep) json["ep"] = *grid.ep;
  if (grid.pp) json["pp"] = *grid.pp;
  return json;
}

Json json_of(const ModesReport& modes) {
  const int64_t recent = modes.kv_recent_tokens_per_rank;
  Json json{{"mode", modes.mode},
            {"prefill", modes.prefill},
            {"ring", or_null(modes.ring)},
            {"decode", modes.decode},
            {"shift_threshold", or_null(modes.shift_threshold)},
            {"gather_threshold", or_null(modes.gather_threshold)},
            {"why", modes.why},
            {"threads", modes.threads},
            {"compute", modes.compute},
            {"attention_library", or_null(modes.attention_library)},
            {"expert_library", or_null(modes.expert_library)},
            {"wire", or_null(modes.wire)},
            {"kv_dtype", modes.kv_dtype},
            {"kv_tokens_per_rank", modes.kv_tokens_per_rank},
            {"kv_recent_tokens_per_rank", recent > 0 ? Json(recent) : Json()},
            {"weight_bytes", modes.weight_bytes},
            {"max_sequences", modes.max_sequences},
            {"max_batch_tokens", modes.max_batch_tokens}};
  if (const auto& graphs = modes.graphs)
    json["graphs"] = {{"launched", graphs->launched},          {"made", graphs->made},
                      {"piecemeal", graphs->piecemeal},        {"joint", graphs->joint},
                      {"disagreed", graphs->disagreed},        {"why_not", graphs->why_not},
                      {"why_not_joint", graphs->why_not_joint}};
  json["expected"] = modes.expected;
  return json;
}

Json json_of(const Prediction& predicted) {
  if (!predicted.none.empty()) return {{"none", predicted.none}};
  Json json{{"seconds", predicted.seconds}};
  for (const Prediction::Phase& phase : predicted.phases)
    json["phases"][phase.name] = {{"seconds", phase.seconds}, {"tokens_per_s", phase.tokens_per_s}};
  if (predicted.ttft_p50_s) json["ttft_s"] = {{"p50", *predicted.ttft_p50_s}};
  if (!predicted.without.empty()) json["without"] = predicted.without;
  json["by"] = predicted.by;
  json["ranks"] = predicted.ranks;
  return json;
}

Json json_of(const std::optional<Percentiles>& values) {
  if (!values) return nullptr;
  return {{"p50", values->p50}, {"p90", values->p90}, {"p99", values->p99}};
}

Json json_of(const PhaseReport& phase, const std::optional<UsedPeak>& peak) {
  return {{"seconds", phase.seconds},
          {"tokens", phase.tokens},
          {"tokens_per_s", or_null(tokens_per_s(phase))},
          {"flops", phase.flops},
          {"share_of_peak", or_null(share_of_peak(phase, peak))}};
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

Json json_of(const MeasuredRate& rate) {
  return {{"best", rate.best},
          {"median", rate.median},
          {"least", rate.least},
          {"windows", rate.windows},
          {"window_s", rate.window_s}};
}

Json json_of(const PeakReport& peak, const UsedPeak& used) {
  Json not_measured = Json::object();
  for (const auto& [instructions, why] : peak.not_measured) not_measured[instructions] = why;
  return {{"flops", used.flops},
          {"from", used.from},
          {"operands", peak.operands},
          {"instructions", peak.instructions},
          {"how", peak.how},
          {"kept", peak.kept},
          {"start", json_of(peak.start)},
          {"end", peak.end ? json_of(*peak.end) : Json()},
          {"not_measured", not_measured},
          {"bandwidth", json_of(peak.bandwidth)},
          {"bandwidth_how", peak.bandwidth_how}};
}

StartRecord own_start(const RunReport& report) {
  const Counts& counts = report.counts;
  return {report.began_unix_s,  report.seconds, counts.done, counts.failed, counts.prompt_tokens,
          counts.output_tokens, report.cores,   report.gpus, report.hosts};
}

/// Joules of the run, and per 1000 tokens that were read or written.
Json json_of(const EnergyReport& energy, const Counts& counts) {
  const double tokens = static_cast<double>(counts.prompt_tokens + counts.output_tokens);
  const auto per_1000 = [&](const std::optional<double>& joules) {
    return joules && tokens > 0 ? Json(1000 * *joules / tokens) : Json();
  };
  return {{"cpu_joules", or_null(energy.cpu_joules)},
          {"gpu_joules", or_null(energy.gpu_joules)},
          {"cpu_joules_per_1000_tokens", per_1000(energy.cpu_joules)},
          {"gpu_joules_per_1000_tokens", per_1000(energy.gpu_joules)},
          {"why_no_cpus", energy.why_no_cpus},
          {"why_no_gpus", energy.why_no_gpus}};
}

std::vector<StartRecord> all_starts(const RunReport& report) {
  std::vector<StartRecord> starts = report.earlier;
  starts.push_back(own_start(report));
  return starts;
}

StartRecord sum_of_starts(const RunReport& report) {
  StartRecord sum = sum_of(all_starts(report));
  sum.done = report.all_done.value_or(sum.done);
  sum.failed = report.all_failed.value_or(sum.failed);
  return sum;
}

/// Node-hours and their price, of this start and of all; null where the job names no price.
Json cost_of(const RunReport& report) {
  if (!report.node_hour_price) return nullptr;
  const auto hours_and_cost = [&](std::optional<double> seconds) -> Json {
    if (!seconds) return nullptr;
    return {{"node_hours", *seconds / 3600}, {"cost", *report.node_hour_price * *seconds / 3600}};
  };
  return {{"node_hour_price", *report.node_hour_price},
          {"start", hours_and_cost(host_seconds({own_start(report)}))},
          {"all_starts", hours_and_cost(host_seconds(all_starts(report)))}};
}

/// {"starts": 2, "seconds": …, "done": …, …, "core_hours" or "gpu_hours": …}
Json sums_of(const RunReport& report) {
  const auto starts = all_starts(report);
  const StartRecord sum = sum_of_starts(report);
  return {{"starts", starts.size()},
          {"seconds", sum.seconds},
          {"done", sum.done},
          {"failed", sum.failed},
          {"prompt_tokens", sum.prompt_tokens},
          {"output_tokens", sum.output_tokens},
          {report.gpus > 0 ? "gpu_hours" : "core_hours", device_seconds(starts) / 3600}};
}

/// Explains long times to the first token, when most of them come from shared passes.
Json ttft_note(const RunReport& report) {
  if (2 * report.shared_first_tokens <= report.first_tokens) return nullptr;
  return fmt::format(
      "{} of {} first tokens came out of passes that read several prompts together. The time to "
      "the first token counts from the pass in which its prompt begins (from the arrival, where "
      "arrivals are replayed), so it includes the other prompts of the passes; the wait before "
      "is queue_s.",
      report.shared_first_tokens, report.first_tokens);
}

/// How often tokens came in time.
Json tbt_goal(const std::vector<double>& tbt_s, double goal_s) {
  const auto later = std::ranges::count_if(tbt_s, [&](double each) { return each > goal_s; });
  const auto tokens = static_cast<double>(tbt_s.size());
  return {{"goal_s", goal_s},
          {"later", later},
          {"share_kept", tbt_s.empty() ? Json() : Json(1 - static_cast<double>(later) / tokens)}};
}

Json json_of(const Counts& counts) {
  return {{"done", counts.done},
          {"failed", counts.failed},
          {"partial", counts.partial},
          {"open", counts.open},
          {"arrived", or_null(counts.arrived)},
          {"prompt_tokens", counts.prompt_tokens},
          {"cached_tokens", counts.cached_tokens},
          {"output_tokens", counts.output_tokens},
          {"vectors", counts.vectors},
          {"scores", counts.scores},
          {"score_tokens", counts.score_tokens},
          {"truncated_turns", counts.truncated_turns},
          {"truncated_tokens", counts.truncated_tokens},
          {"cut_by_length", counts.cut_by_length},
          {"cut_by_model_length", counts.cut_by_model_length}};
}

/// "198 GFLOP/s", "41.0 GB/s".
std::string rate_text(double per_s, std::string_view unit) {
  const std::string count = format_count(per_s);
  const size_t digits = count.find_first_not_of("0123456789.");
  return fmt::format("{} {}{}", count.substr(0, digits),
                     digits == std::string::npos ? "" : count.substr(digits), unit);
}

/// "198 GFLOP/s (AVX2 VFMADD231PS)".
std::string peak_text(const PeakReport& peak, const UsedPeak& used) {
  const bool measured = used.from == "start" || used.from == "end";
  return fmt::format(
      "{} ({})", rate_text(used.flops, "FLOP/s"),
      measured
          ? peak.instructions
          : fmt::format(
                "reached in {}; {} gave {} beside the run", used.from, peak.instructions,
                rate_text(std::max(peak.start.best, peak.end ? peak.end->best : 0), "FLOP/s")));
}

Json json_of(const DraftReport& drafts) {
  const auto tokens_of = [](const DraftReport::Tokens& tokens) {
    return Json{{"tried", tokens.tried}, {"accepted", tokens.accepted}};
  };
  Json found = tokens_of(drafts.tokens);
  found["passes"] = drafts.passes;
  found["computed_again"] = drafts.computed_again;
  found["saved_s"] = drafts.saved_s ? Json(*drafts.saved_s) : Json();
  found["saved_s_note"] =
      "an estimate: what measured passes without drafts would have taken for the tokens of passes "
      "with drafts, less what these took; of passes of answers alone, where both are known";
  found["by_match"] = found["by_instruction"] = Json::array();
  for (const DraftReport::Match& match : drafts.by_match) {
    found["by_match"].push_back(tokens_of(match.tokens));
    found["by_match"].back()["up_to"] = match.up_to ? Json(*match.up_to) : Json();
  }
  for (const DraftReport::Instruction& instruction : drafts.by_instruction) {
    found["by_instruction"].push_back(tokens_of(instruction.tokens));
    found["by_instruction"].back()["row"] = instruction.row ? Json(*instruction.row) : Json();
  }
  return found;
}

Json json_of(const KvReport& kv) {
  Json demand;
  if (kv.demand)
    demand = {{"most_at_once", kv.demand->most_at_once},
              {"blocks", kv.demand->blocks},
              {"parked", kv.demand->parked},
              {"parked_tokens", kv.demand->parked_tokens},
              {"moved", kv.demand->moved},
              {"moved_tokens", kv.demand->moved_tokens},
              {"scale_ups", kv.demand->scale_ups},
              {"forgotten", kv.demand->forgotten},
              {"reread_tokens", kv.demand->reread_tokens},
              {"park_s", kv.demand->park_s}};
  return {{"demand", demand},
          {"answer_tokens",
           {{"p10", kv.answer_quantiles[0]},
            {"p50", kv.answer_quantiles[1]},
            {"p90", kv.answer_quantiles[2]}}},
          {"restored_requests", kv.restored_requests},
          {"restored_tokens", kv.restored_tokens},
          {"restore_s", kv.restore_s},
          {"kept_requests", kv.kept_requests},
          {"kept_tokens", kv.kept_tokens},
          {"kept_bytes", kv.kept_bytes},
          {"keep_s", kv.keep_s},
          {"not_worth_keeping", kv.not_worth_keeping}};
}

Json json_of(const WindowReport& windows) {
  return {{"sent_bytes", windows.sent_bytes},
          {"whole_ring_bytes", windows.whole_ring_bytes},
          {"saved_share", windows.saved_share()}};
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
  for (const T& item : items) {
    if constexpr (std::is_same_v<T, StartRecord>)
      array.push_back(to_json(item));
    else
      array.push_back(json_of(item));
  }
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

MeasuredRate measured_rate(std::vector<double> windows, double window_s) {
  PECIA_CHECK(!windows.empty(), "a rate of no windows");
  std::ranges::sort(windows);
  return {windows.back(), windows[windows.size() / 2], windows.front(),
          static_cast<int>(windows.size()), window_s};
}

std::optional<UsedPeak> used_peak(const RunReport& report) {
  if (!report.peak) return std::nullopt;
  UsedPeak used{report.peak->start.best, "start"};
  if (report.peak->end && report.peak->end->best > used.flops)
    used = {report.peak->end->best, "end"};
  for (const PhaseReport& phase : report.phases)
    if (const auto speed = speed_of(phase); speed && *speed > used.flops)
      used = {*speed, phase.name};
  if (!(used.flops > 0)) return std::nullopt;
  return used;
}

Json to_json(const RunReport& report) {
  const BuildInfo& build = build_info();
  const auto peak = used_peak(report);
  Json phases = Json::object();
  for (const PhaseReport& phase : report.phases) phases[phase.name] = json_of(phase, peak);
  return {
      {"schema", "pecia.report/1"},
      {"build",
       {{"version", build.version},
        {"commit", build.commit},
        {"type", build.build_type},
        {"compiler", build.compiler}}},
      {"command", report.command},
      {"job", report.job},
      {"model", report.model},
      {"machine", json_of(report.machine)},
      {"topology", report.topology},
      {"grid", json_of(report.grid)},
      {"modes", json_of(report.modes)},
      {"elastic", report.elastic},
      {"prefix_sharing", report.prefix_sharing},
      {"sparse", report.sparse},
      {"windows", report.windows ? json_of(*report.windows) : Json()},
      {"counts", json_of(report.counts)},
      {"kv", json_of(report.kv)},
      {"drafts", report.drafts ? json_of(*report.drafts) : Json()},
      {"seconds", report.seconds},
      {"cores", report.cores},
      {"gpus", report.gpus},
      {report.gpus > 0 ? "gpu_hours" : "core_hours", device_seconds({own_start(report)}) / 3600},
      {"energy", report.energy ? json_of(*report.energy, report.counts) : Json()},
      {"cost", cost_of(report)},
      {"starts", array_of(all_starts(report))},
      {"all_starts", sums_of(report)},
      {"startup", report.startup ? json_of(*report.startup) : Json()},
      {"phases", phases},
      {"ttft_s", json_of(percentiles(report.ttft_s))},
      {"ttft_note", ttft_note(report)},
      {"tbt_s", json_of(percentiles(report.tbt_s))},
      {"tbt_goal", report.tbt_goal_s ? tbt_goal(report.tbt_s, *report.tbt_goal_s) : Json()},
      {"exposed_communication", or_null(exposed_communication(report.ranks))},
      {"peak_flops", peak ? Json(peak->flops) : Json()},
      {"peak", peak ? json_of(*report.peak, *peak) : Json()},
      {"stages", array_of(report.stages)},
      {"ranks", array_of(report.ranks)},
      {"links", array_of(report.links)},
      {"predicted", report.predicted ? json_of(*report.predicted) : Json()},
      {"errors", report.errors}};
}

void write_report(const std::filesystem::path& path, const RunReport& report) {
  write_atomically(path, json_text(to_json(report), 2) + "\n");
}

bool is_final_report(const std::filesystem::path& path, int64_t done, int64_t failed) try {
  const Json report = parse_json<Json>(text_of_file(path).value_or(""));
  const Json& counts = report.at("counts");
  const Json& all = report.at("all_starts");
  return counts.at("open") == 0 && counts.at("partial") == 0 && all.at("done") == done &&
         all.at("failed") == failed;
} catch (const Json::exception&) {
  return false;
}

std::string cut_text(const Counts& counts) {
  std::string text;
  const auto add = [&](int64_t number, const char* what, const char* how) {
    if (number > 0)
      text += fmt::format("{}{} {}{} {}", text.empty() ? "" : ", ", number, what,
                          number == 1 ? "" : "s", how);
  };
  add(counts.truncated_turns, "prompt", "truncated");
  add(counts.cut_by_length - counts.cut_by_model_length, "answer", "cut at max_new_tokens");
  add(counts.cut_by_model_length, "answer", "cut at the model's length");
  return text;
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
  std::string left;
  if (const int64_t unfinished = report.counts.partial + report.counts.open; unfinished > 0) {
    left += fmt::format(", {} to continue", unfinished);
    if (report.counts.arrived) left += fmt::format(", {} arrived", *report.counts.arrived);
  }
  const StartRecord own = own_start(report);
  std::string line = text_of(own, device_seconds({own}), left);
  if (const std::string cut = cut_text(report.counts); !cut.empty()) line += " · " + cut;
  if (report.kv.restored_requests > 0)
    line += fmt::format(" · restored {} tokens of {}",
                        format_count(static_cast<double>(report.kv.restored_tokens)),
                        requests_text(report.kv.restored_requests));
  const auto peak = used_peak(report);
  for (const PhaseReport& phase : report.phases) {
    const auto speed = tokens_per_s(phase);
    if (!speed) continue;
    line += fmt::format(" · {} {} tok/s", phase.name, format_count(*speed));
    if (const auto share = share_of_peak(phase, peak))
      line += fmt::format(" ({} of peak)", format_percent(*share));
  }
  if (const auto exposed = exposed_communication(report.ranks))
    line += " · exposed communication " + format_percent(*exposed);
  if (report.windows)
    line += fmt::format(" · window layers sent {}, {} less than a whole ring",
                        format_bytes(report.windows->sent_bytes),
                        format_percent(report.windows->saved_share()));
  if (peak)
    line += fmt::format(" · peak {}, {}", peak_text(*report.peak, *peak),
                        rate_text(report.peak->bandwidth.best, "B/s"));
  line += " · " + path.string();
  if (report.earlier.empty()) return line;
  const auto starts = all_starts(report);
  return fmt::format("this start: {}\n       all {} starts: {}", line, starts.size(),
                     text_of(sum_of_starts(report), device_seconds(starts), left));
}

}  // namespace pecia::report
