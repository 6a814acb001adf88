// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_sweep.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/pecia/plan_times.hpp"
#include "lib/core/error.hpp"
#include "lib/foresight/would_fit.hpp"
#include "lib/report/format.hpp"
#include "lib/resources/prefix_sharing.hpp"

namespace pecia::app {
namespace {

using foresight::Foreseen;
using Json = nlohmann::ordered_json;

/// Tells on stderr how far a sweep is, once it has taken two seconds: a line that is redrawn on a
/// terminal, or a line every few seconds.
class SweepProgress {
 public:
  ~SweepProgress() {
    if (shown_ && terminal_) fmt::print(stderr, "\r\x1b[K");
  }

  void operator()(int64_t decided, int64_t all) {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000));
    shown_ = true;
    fmt::print(stderr, "{}pecia plan: {} of {} layouts{}", terminal_ ? "\r" : "", decided, all,
               terminal_ ? "" : "\n");
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_ = isatty(STDERR_FILENO) != 0, shown_ = false;
  Clock::time_point next_ = Clock::now() + std::chrono::seconds(2);
};

std::string plural(int64_t number, const char* what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

/// The layout in the words of a job file.
Json json_of(const job::Job::Parallel& parallel, const resources::Resources& resources) {
  const auto word = [](const auto& mode) {
    return mode ? std::string(job::name_of(*mode)) : std::string("auto");
  };
  Json json{{"dp", *parallel.dp},
            {"cp", *parallel.cp.degree},
            {"cp_elastic", resources.elastic},
            {"sp", *parallel.sp},
            {"tp", *parallel.tp},
            {"ep", resources.ep},
            {"prefill", word(parallel.prefill)},
            {"ring", word(parallel.ring)},
            {"decode", word(parallel.decode)}};
  if (parallel.shift_threshold) json["shift_threshold"] = *parallel.shift_threshold;
  json["mode"] = resources::mode_name(resources);
  json["why"] = resources.reasons.text();
  return json;
}

Json json_of(const foresight::RankMemory& memory, int64_t kv_per_token) {
  return {
      {"program", memory.program_bytes},
      {"weights", memory.weight_bytes},
      {"kv_per_token", kv_per_token},
      {"kv", memory.kv_bytes},
      {"kv_recent_tokens", memory.kv_recent_tokens > 0 ? Json(memory.kv_recent_tokens) : Json()},
      {"work", memory.work_bytes},
      {"free", memory.free_bytes}};
}

Json parts_of(const foresight::RankTimes& times, double divisor) {
  return {{"gemm_s", times.gemm_s / divisor},
          {"attention_s", times.attention_s / divisor},
          {"exposed_comm_s", times.exposed_comm_s / divisor},
          {"other_s", times.other_s / divisor}};
}

Json request_of(foresight::Passes& passes, const Foreseen& plan,
                const foresight::RequestShape& shape) {
  const foresight::RequestTime time =
      foresight::foresee(passes, plan.resources, shape, plan.how_far);
  return {{"prompt_tokens", shape.prompt_tokens},
          {"cached_tokens", shape.cached_tokens},
          {"new_tokens", shape.new_tokens},
          {"ttft_s", time.ttft_s},
          {"tbt_s", time.tbt_s},
          {"prefill", parts_of(time.prefill, 1)}};
}

Json json_of(foresight::Passes& passes, const Foreseen& plan,
             const std::vector<foresight::RequestShape>& shapes) {
  const foresight::PassSetting& setting = passes.setting();
  const int per_server = setting.cluster.ranks_per_server;
  Json json{{"ranks", plan.ranks},
            {"servers", (plan.ranks + per_server - 1) / per_server},
            {"parallel", json_of(plan.parallel, plan.resources)},
            {"fits", plan.end.has_value()},
            {"by_one_rank", plan.how_far == foresight::HowFar::alike},
            {"why_not", plan.memory.why_not ? Json(*plan.memory.why_not) : Json()},
            {"memory_bytes_per_rank",
             json_of(plan.memory, resources::kv_bytes_of_rank(setting.config, plan.resources))},
            {"max_batch_tokens", plan.resources.max_batch_tokens},
            {"max_sequences", plan.resources.max_sequences},
            {"requests", Json::array()}};
  if (!plan.end) return json;
  const foresight::BatchEnd& end = *plan.end;
  for (const foresight::RequestShape& shape : shapes)
    json["requests"].push_back(request_of(passes, plan, shape));
  json["end_s"] = end.end_s;
  json["end_range_s"] = {end.soonest_s, end.latest_s};
  json["gpu_hours"] = plan.gpu_hours();
  json["busy"] = end.busy;
  json["refused_turns"] = end.refused;
  const double dp = *plan.parallel.dp;
  json["phases"] = {{"prefill", parts_of(end.prefill.times, dp)},
                    {"decode", parts_of(end.decode.times, dp)},
                    {"first_touch_s", end.first_touch_s},
                    {"idle_s", (1 - end.busy) * (end.end_s - end.first_touch_s)}};
  for (size_t level = 0; level < comm::num_link_levels; ++level)
    json["bytes_by_level"][comm::link_level_names[level]] =
        std::llround(end.prefill.sent_bytes[level] + end.decode.sent_bytes[level]);
  json["limit"] = foresight::limit_of(plan);
  return json;
}

/// The largest number of ranks up to which twice the ranks cost at most a quarter more GPU-hours each
/// time; null where one number was asked about.
Json knee_of(const Json& plans) {
  std::map<int, double> hours;  // of the best layout on each number of ranks
  for (const Json& plan : plans)
    if (plan["fits"].get<bool>()) hours.try_emplace(plan["ranks"], plan["gpu_hours"]);
  if (hours.size() < 2) return {};
  constexpr double most_per_doubling = 1.25;
  auto knee = hours.begin();
  for (auto next = std::next(knee); next != hours.end(); ++next) {
    const double doublings = std::log2(static_cast<double>(next->first) / knee->first);
    if (next->second > knee->second * std::pow(most_per_doubling, doublings)) break;
    knee = next;
  }
  return knee->first;
}

std::string grid_text(const Json& parallel) {
  std::string text;
  for (const auto& [key, name] :
       {std::pair("dp", "DP"), {"cp", "CP"}, {"sp", "SP"}, {"tp", "TP"}, {"ep", "EP"}})
    if (parallel[key] != 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : " × ", name, parallel[key].get<int>());
  return text.empty() ? "one rank" : text;
}

/// The job's section of a plan, as one line.
std::string job_line(const Json& parallel) {
  std::string line;
  for (const auto& [key, value] : parallel.items()) {
    if (key == "mode" || key == "why" || key == "cp_elastic" || value == "auto") continue;
    if (key == "ep" && value == 1) continue;  // without experts there is nothing else
    const bool changes = key == "cp" && parallel["cp_elastic"].get<bool>();
    line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", key,
                        changes             ? "elastic"
                        : value.is_string() ? value.get<std::string>()
                                            : value.dump());
  }
  return fmt::format("parallel: {{{}}}", line);
}

/// The best of each number of ranks, and what is left of `most` rows for the best others.
std::vector<const Json*> rows_of(const Json& plans, size_t most) {
  std::map<int, const Json*> best;
  for (const Json& plan : plans) best.try_emplace(plan["ranks"], &plan);
  size_t others = most > best.size() ? most - best.size() : 0;
  std::vector<const Json*> rows;
  for (const Json& plan : plans) {
    const bool is_best = best[plan["ranks"]] == &plan;
    if (!is_best && others == 0) continue;
    if (!is_best) --others;
    rows.push_back(&plan);
  }
  return rows;
}

std::string row_text(const Json& plan) {
  const Json& memory = plan["memory_bytes_per_rank"];
  const Json& parallel = plan["parallel"];
  std::string row = fmt::format("  {:>6}  {:<26} {:<30}", plan["ranks"].get<int>(),
                                grid_text(parallel), parallel["mode"].get<std::string>());
  const auto bytes = [&](const char* key) { return memory[key].get<int64_t>(); };
  const std::string used =
      report::format_bytes(bytes("program") + bytes("weights") + bytes("kv") + bytes("work"));
  if (!plan["fits"].get<bool>()) return row + "  does not fit\n";
  double ttft_s = 0;
  for (const Json& request : plan["requests"])
    ttft_s = std::max(ttft_s, request["ttft_s"].get<double>());
  return row + fmt::format("{}{:>13} {:>10.2f} {:>12} {:>10}  {}\n",
                           plan["by_one_rank"].get<bool>() ? "*" : " ",
                           report::format_duration(plan["end_s"]), plan["gpu_hours"].get<double>(),
                           report::format_duration(ttft_s), used, plan["limit"].get<std::string>());
}

std::string sharing_text(const Json& sharing) {
  if (sharing.contains("none") || sharing["requests"] == 0) return "";
  return fmt::format(
      "  in the best, {} begin alike in {}: {} prompt tokens are not computed again "
      "(batch.prefix_sharing)\n",
      plural(sharing["requests"].get<int64_t>(), "request"),
      plural(sharing["prefixes"].get<int64_t>(), "group"),
      report::format_count(sharing["spared_tokens"].get<double>()));
}

}  // namespace

Json swept_plans(foresight::Passes& passes, foresight::Batches& batches,
                 const foresight::SweepQuestion& asked,
                 const std::vector<foresight::RequestShape>& shapes,
                 const std::filesystem::path& trace) {
  SweepProgress progress;
  foresight::SweepQuestion question = asked;
  question.on_progress = [&](int64_t decided, int64_t all) { progress(decided, all); };
  const foresight::Sweep found = foresight::sweep(passes, batches, question);
  const foresight::PassSetting& setting = passes.setting();
  if (const Foreseen& best = found.plans.front(); !trace.empty() && best.end)
    foresight::write_traces(passes, best.resources, shapes.back(), trace);
  Json json{{"batch", batch_json(batches.alone())}, {"plans", Json::array()}};
  for (const Foreseen& plan : found.plans) {
    Json& last = json["plans"].emplace_back(json_of(passes, plan, shapes));
    if (plan.end) {
      last["prefix_sharing"] = resources::json_of(
          plan.end->sharing, batches.why_not_shared(setting.job, plan.resources));
      continue;
    }
    const auto change = foresight::would_fit(setting, batches, asked, plan.ranks);
    last["would_fit"] = change ? Json(*change) : Json();
  }
  json["knee"] = knee_of(json["plans"]);
  json["left_out"] = {
      {"slower", found.slower}, {"too_large", found.too_large}, {"open", found.open}};
  json["layouts"] = found.layouts;
  return json;
}

std::string sweep_text(const Json& plan) {
  const Json &plans = plan["plans"], &best = plans.front();
  std::string text = batch_text(plan["batch"]);
  if (plan["cluster"].contains("assumed"))
    text += fmt::format("  assumed: {}; --cluster FILE says it otherwise\n",
                        plan["cluster"]["assumed"].get<std::string>());
  text += fmt::format(
      "  foreseen on {}: {}, {} played, {} cannot be faster, {} too large\n",
      plan["cluster"]["name"].get<std::string>(), plural(plan["layouts"].get<int64_t>(), "layout"),
      std::ranges::count_if(plans, [](const Json& each) { return each["fits"]; }),
      plan["left_out"]["slower"].get<int64_t>(), plan["left_out"]["too_large"].get<int64_t>());
  const auto by_one =
      std::ranges::count_if(plans, [](const Json& each) { return each["by_one_rank"]; });
  if (by_one > 0 || plan["left_out"]["open"] > 0)
    text += fmt::format(
        "  with so many ranks, {} of these are foreseen from one rank (*), and {} were not "
        "compared\n",
        by_one, plural(plan["left_out"]["open"].get<int64_t>(), "more layout"));
  text += fmt::format("  {:>6}  {:<26} {:<30} {:>13} {:>10} {:>12} {:>10}  {}\n", "ranks", "grid",
                      "prefill + decode", "batch ends", "GPU-hours", "first token", "of memory",
                      "limit");
  constexpr size_t most_rows = 12;
  for (const Json* row : rows_of(plans, most_rows)) text += row_text(*row);
  for (const Json& each : plans) {
    if (each["fits"].get<bool>()) continue;
    text += fmt::format("  does not fit on {}: {}; {}\n", plural(each["ranks"].get<int>(), "rank"),
                        each["why_not"].get<std::string>(),
                        each["would_fit"].is_null()
                            ? "no change that was tried would fit"
                            : "would fit: " + each["would_fit"].get<std::string>());
  }
  if (!plan["knee"].is_null())
    text += fmt::format(
        "  knee: up to {} ranks, twice the ranks cost at most a quarter more "
        "GPU-hours\n",
        plan["knee"].get<int>());
  if (!best["fits"].get<bool>()) return text + cluster_text(plan);
  constexpr size_t most_requests = 6;
  text += "  in the best, each request alone:\n" + requests_text(best, most_requests);
  text += sharing_text(best["prefix_sharing"]);
  text += fmt::format("  the best ends between {} and {} after its start\n",
                      report::format_duration(best["end_range_s"][0]),
                      report::format_duration(best["end_range_s"][1]));
  text +=
      fmt::format("  to run the best: {}\n    sbatch --nodes={} jobs/slurm/pecia.sbatch job.yaml\n",
                  job_line(best["parallel"]), best["servers"].get<int>());
  return text + cluster_text(plan);
}

}  // namespace pecia::app
