// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "lib/simulation/calibration.hpp"
#include "lib/simulation/sweep.hpp"
#include "lib/work/job/job_model.hpp"
#include "lib/work/resources/footprint.hpp"

namespace pecia::settle {
namespace {

using Json = nlohmann::ordered_json;

/// A run whose batch can be played again.
struct FinishedRun {
  job::Job job;  ///< with the layout that it had
  model::ModelConfig config;
  int ranks = 1;
  int64_t batch_tokens = 1;
  std::optional<batch::Inputs> inputs;
  std::optional<simulation::Batches> batches;
};

Json report_in(const std::filesystem::path& folder) {
  Json report = read_json_object(folder / "report.json");
  if (report.is_null())
    fail<InputError>(
        "--calibrate {}: there is no report.json; name the output folder of a run, or a file of "
        "pecia-bench ops --json",
        folder.string());
  if (report.value("schema", "") != "pecia.report/1")
    fail<InputError>("--calibrate {}: report.json is not of schema pecia.report/1",
                     folder.string());
  return report;
}

/// Throws where the report does not tell how long the whole batch took.
void require_whole(const Json& report, const std::filesystem::path& folder) {
  const auto refuse = [&](const char* why) {
    fail<InputError>("--calibrate {}: {}; name a run that did its whole batch in one start",
                     folder.string(), why);
  };
  if (report["starts"].size() != 1) refuse("the run had several starts");
  const Json& counts = report["counts"];
  if (counts["partial"] != 0 || counts["open"] != 0) refuse("the run is unfinished");
  if (counts["failed"] != 0) refuse("some turns failed");
  if (report["gpus"] != 0) refuse("runs on GPUs are not fitted in this version");
}

/// The job as its run resolved it, in the words of a job.
job::Job job_of(const Json& report, const std::string& name) {
  const Json &grid = report["grid"], &modes = report["modes"];
  std::vector<std::string> settings;
  const auto set = [&](const char* key, const std::string& value) {
    settings.push_back(fmt::format("{}={}", key, value));
  };
  for (const char* degree : {"dp", "sp", "tp"})
    set(fmt::format("parallel.{}", degree).c_str(), grid[degree].dump());
  for (const char* degree : {"ep", "pp"})
    if (grid.contains(degree)) set(fmt::format("parallel.{}", degree).c_str(), grid[degree].dump());
  set("parallel.cp", report["elastic"].is_null() ? grid["cp"].dump() : "elastic");
  if (modes["prefill"] != "single") {
    set("parallel.prefill", modes["prefill"].get<std::string>());
    set("parallel.decode", modes["decode"].get<std::string>());
  }
  if (!modes["shift_threshold"].is_null())
    set("parallel.shift_threshold", modes["shift_threshold"].dump());
  if (!modes.value("gather_threshold", Json()).is_null())
    set("parallel.gather_threshold", modes["gather_threshold"].dump());
  set("batch.max_sequences", modes["max_sequences"].dump());
  set("batch.max_batch_tokens", modes["max_batch_tokens"].dump());
  return job::parse_job(json_text(report["job"]), name, settings);
}

/// Answers that ended early are as long as they were, on average.
void shorten_answers(std::vector<schedule::SimulatedRequest>& requests, int64_t output_tokens) {
  int64_t full = 0;
  for (const schedule::SimulatedRequest& request : requests)
    for (const schedule::SimulatedTurn& turn : request.turns) full += turn.answer_tokens;
  if (full <= output_tokens) return;
  const double share = static_cast<double>(output_tokens) / static_cast<double>(full);
  for (schedule::SimulatedRequest& request : requests)
    for (schedule::SimulatedTurn& turn : request.turns)
      if (turn.answer_tokens > 0)
        turn.answer_tokens = std::max<int64_t>(
            1, static_cast<int64_t>(share * static_cast<double>(turn.answer_tokens) + 0.5));
}

std::shared_ptr<FinishedRun> run_of(const Json& report, const std::filesystem::path& folder) {
  const auto run = std::make_shared<FinishedRun>();
  run->job = job_of(report, (folder / "report.json").string());
  run->config = job::read_model_config(run->job);
  run->ranks = static_cast<int>(report["ranks"].size());
  run->batch_tokens = report["modes"]["max_batch_tokens"].get<int64_t>();
  run->inputs.emplace(run->job, run->config);
  if (schedule::runnable_groups(*run->inputs, run->job.batch).empty())
    fail<InputError>("--calibrate {}: no request can run", folder.string());
  const auto output_tokens = report["counts"]["output_tokens"].get<int64_t>();
  run->batches.emplace(
      run->job, *run->inputs, run->config, simulation::Batches::Part(),
      [output_tokens](auto& requests) { shorten_answers(requests, output_tokens); });
  return run;
}

simulation::WorkSeconds foreseen(FinishedRun& run, const cluster_files::Cluster& cluster) {
  const resources::KvFootprint kv = resources::kv_footprint(run.job, run.config, nullptr, {});
  simulation::PassCosts costs({.job = run.job,
                               .config = run.config,
                               .cluster = cluster,
                               .weights = resources::float_type(run.job, run.config),
                               .kv = kv.dtype,
                               .traits = simulation::traits_of(cluster, run.job)});
  job::Job::Parallel layout = run.job.parallel;
  if (!layout.cp.degree)
    layout.cp.degree = run.ranks / (*layout.dp * *layout.pp * *layout.sp * *layout.tp);
  const auto plan = simulation::forecast(costs, *run.batches, layout, run.ranks, run.batch_tokens);
  if (!plan.end)
    fail<InputError>("a run that was made does not fit the cluster: {}; correct its memory_gib",
                     plan.memory.why_not.value_or("it has no room"));
  const double dp = *layout.dp;
  const simulation::RankTimes &prefill = plan.end->prefill.times, &decode = plan.end->decode.times;
  return {(prefill.gemm_s + decode.gemm_s) / dp, prefill.attention_s / dp, decode.attention_s / dp,
          (prefill.other_s + decode.other_s) / dp,
          (prefill.exposed_comm_s + decode.exposed_comm_s) / dp};
}

/// What a rank's ops took, on average. Products are the ops with FLOPs that are not attention.
simulation::TakenSeconds taken(const Json& report) {
  const auto ranks = static_cast<double>(report["ranks"].size());
  simulation::TakenSeconds taken;
  for (const Json& stage : report["stages"]) {
    if (stage["kind"] != "compute") continue;
    const double seconds = stage["seconds"].get<double>() / ranks;
    if (stage["name"] == "attention")
      taken.attention_s += seconds;
    else if (stage["flops"].get<double>() > 0)
      taken.gemm_s += seconds;
    else
      taken.other_s += seconds;
  }
  for (const auto& [name, phase] : report["phases"].items())
    if (name == "prefill" || name == "decode") taken.all_s += phase["seconds"].get<double>();
  return taken;
}

/// The key of the run's ranks; "" where nothing was foreseen.
std::string ranks_of(const Json& report) {
  const Json& predicted = report["predicted"];
  return predicted.is_object() ? predicted.value("ranks", "") : "";
}

/// Keeps the cluster for later runs if it describes the ranks that these runs had: the description
/// that is kept for them has its name. Returns whether it is kept.
bool kept_for(const std::set<std::string>& keys, const cluster_files::Cluster& cluster) {
  if (keys.size() != 1) return false;
  const auto earlier = measure::kept_cluster(*keys.begin());
  if (!earlier || earlier->rank.name != cluster.rank.name) return false;
  measure::keep_cluster(*keys.begin(), cluster);
  return true;
}

simulation::Observation observed_run(const Json& report, const std::filesystem::path& folder) {
  require_whole(report, folder);
  const auto run = run_of(report, folder);
  const auto name = folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
  return {fmt::format("{}, {}", name.string(), report["modes"]["mode"].get<std::string>()),
          taken(report),
          [run](const cluster_files::Cluster& with) { return foreseen(*run, with); }};
}

}  // namespace

simulation::Calibration calibrate(const std::vector<std::filesystem::path>& sources,
                                  const cluster_files::Cluster& cluster) {
  std::vector<simulation::Observation> observations;
  std::set<std::string> keys;
  for (const std::filesystem::path& source : sources) {
    if (std::filesystem::is_regular_file(source)) {
      std::ranges::move(simulation::timed_ops(source, cluster.rank.gpu),
                        std::back_inserter(observations));
    } else {
      const Json report = report_in(source);
      observations.push_back(observed_run(report, source));
      keys.insert(ranks_of(report));
    }
  }
  simulation::Calibration found = simulation::fit_cluster(cluster, observations);
  for (const std::filesystem::path& source : sources) found.sources.push_back(source.string());
  found.kept = kept_for(keys, found.cluster);
  return found;
}

}  // namespace pecia::settle
