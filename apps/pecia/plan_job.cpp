// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>

#include "apps/pecia/plan_batch.hpp"
#include "apps/pecia/plan_lengths.hpp"
#include "kernels/api/gpu_traits.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/model/config/presets.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/settle/calibrate.hpp"
#include "lib/settle/this_cluster.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/cluster_files/gpu_servers.hpp"
#include "lib/work/job/job_model.hpp"
#include "lib/work/resources/compute_place.hpp"

namespace pecia::app {
namespace {

using simulation::PlanReport;

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

/// The job without a file. Its prompts and its output have no meaning.
job::Job job_of_model(const PlanQuestion& question) {
  std::vector<std::string> values{"model.path=" + question.model, "input=[none.h5]", "output=none"};
  values.insert(values.end(), question.overrides.begin(), question.overrides.end());
  return job::parse_job("", "pecia plan --model", values);
}

/// The requests that are asked about, or the job's longest prompt as far as the model reads it.
std::vector<simulation::RequestShape> shapes_of(const std::vector<AskedRequests>& asked,
                                                const PlanReport& plan) {
  std::vector<simulation::RequestShape> shapes;
  for (const AskedRequests& each : asked) shapes.push_back(each.shape);
  if (!shapes.empty()) return shapes;
  return {{std::clamp<int64_t>(plan.prompts->longest_tokens, 1, plan.config.max_positions)}};
}

/// The cluster that the question names. "this" is one rank on this machine, measured now.
cluster_files::Cluster cluster_of(const PlanQuestion& question, const job::Job& job, int ranks) {
  if (!question.gpu.empty())
    return cluster_files::gpu_servers(question.gpu, question.per_server).cluster;
  if (question.cluster != "this") return cluster_files::cluster_of(question.cluster);
  if (ranks > 1)
    fail<InputError>(
        "--cluster this is one rank on this machine, not {}; write a file with mpirun -np {} pecia "
        "topology --measure --cluster-file FILE, and name that",
        ranks, ranks);
  const auto alone = comm::make_null_communicator();
  const resources::Threads threads = resources::threads_of_rank(*alone);
  const resources::ComputePlace place =
      resources::make_compute_place(job, resources::computes_on_gpus(job, *alone), threads, *alone);
  return settle::measure_this_cluster(*alone, {comm::RackServerGpu{"", cluster::host_name(), 0}},
                                      job, place, threads.cache_bytes);
}

/// The question's cluster, fitted to runs where it names some.
simulation::ClusterReport cluster_report(const PlanQuestion& question, const job::Job& job,
                                         int ranks) {
  simulation::ClusterReport report{question.cluster, cluster_of(question, job, ranks)};
  if (!question.gpu.empty()) {
    const auto servers = cluster_files::gpu_servers(question.gpu, question.per_server);
    report.name = servers.name, report.assumed = servers.assumed;
  }
  if (!question.calibrate.empty()) {
    report.calibration =
        settle::calibrate({question.calibrate.begin(), question.calibrate.end()}, report.cluster);
    report.cluster = report.calibration->cluster;
  }
  if (!question.cluster_file.empty())
    report::write_atomically(question.cluster_file, to_yaml(report.cluster));
  return report;
}

/// A job that names no backend has that of the cluster.
void take_backend(job::Job& job, const cluster_files::RankPeaks& rank) {
  const auto here = rank.gpu ? job::BackendKind::cuda : job::BackendKind::cpu;
  if (job.backend.value_or(here) != here)
    fail<InputError>("backend: {}, but the cluster's ranks ({}) are of backend {}; leave it out",
                     name_of(*job.backend), rank.name, name_of(here));
  job.backend = here;
}

/// The job that the question names, with its prompts if it says which.
job::Job job_of(const PlanQuestion& question) {
  job::Job job = question.job_file.empty() ? job_of_model(question)
                                           : job::read_job(question.job_file, question.overrides);
  if (question.prompts.empty()) return job;
  if (!std::filesystem::exists(question.prompts))
    fail<InputError>("--requests {}: there is no such file; scripts/pecia-pack makes one",
                     question.prompts.string());
  job.input = {question.prompts};
  return job;
}

simulation::KeptDegrees kept_degrees(const PlanQuestion& question, const job::Job& job) {
  const auto named = job::named_keys(question.job_file, question.overrides);
  const job::Job::Parallel& parallel = job.parallel;
  const auto kept = [&](const char* key, std::optional<int> degree) {
    return named.contains(key) ? degree : std::nullopt;
  };
  return {kept("parallel.dp", parallel.dp),
          parallel.pp,
          parallel.cp.degree,
          kept("parallel.sp", parallel.sp),
          kept("parallel.tp", parallel.tp),
          parallel.ep};
}

/// The asked requests, or those of the inputs.
std::unique_ptr<simulation::Batches> batches_of(const std::vector<AskedRequests>& asked,
                                                const PlanReport& plan, batch::Inputs* inputs) {
  if (!asked.empty()) return std::make_unique<simulation::Batches>(simulated(asked), plan.config);
  if (inputs == nullptr)
    fail<InputError>(
        "there are no prompts to foresee{}; name some with --requests FILE.h5, or say lengths with "
        "--request PROMPT[:NEW][xCOUNT]",
        plan.prompts_missing.empty() ? "" : ": " + plan.prompts_missing);
  if (schedule::runnable_groups(*inputs, plan.job.batch).empty())
    refuse_without_prompts(*inputs, plan.job, plan.config);
  return std::make_unique<simulation::Batches>(plan.job, *inputs, plan.config);
}

/// Adds the layouts on the plan's cluster.
void add_sweep(const PlanQuestion& question, PlanReport& plan, batch::Inputs* inputs) {
  const job::Job& job = plan.job;
  const cluster_files::Cluster& cluster = plan.cluster->cluster;
  const std::vector<AskedRequests> requests = parse_requests(question.requests);
  refuse_long_requests(requests, job, plan.config, job.model.path.string());
  const auto batches = batches_of(requests, plan, inputs);
  const auto alone = comm::make_null_communicator();
  simulation::PassCosts costs({.job = job,
                               .config = plan.config,
                               .cluster = cluster,
                               .weights = resources::float_type(job, plan.config),
                               .kv = plan.kv.dtype,
                               .traits = simulation::traits_of(cluster, job),
                               .threads = resources::threads_of_rank(*alone).count});
  SweepProgress progress;
  simulation::SweepQuestion asked;
  asked.kept = kept_degrees(question, job);
  asked.on_progress = std::ref(progress);
  for (const int64_t ranks : question.ranks)
    if (std::ranges::find(asked.ranks, ranks) == asked.ranks.end())
      asked.ranks.push_back(static_cast<int>(ranks));
  if (asked.ranks.empty()) asked.ranks = {fewest_ranks(job.parallel)};
  const std::vector<simulation::RequestShape> shapes = shapes_of(requests, plan);
  plan.sweep = sweep_report(costs, *batches, asked, shapes);
  if (const auto& best = plan.sweep->plans.front(); !question.trace.empty() && best.fits())
    write_traces(costs, best.resources, shapes.back(), question.trace);
}

/// Adds how a run on this machine would take the job, and what its first rank needs; its parts of what
/// is cut are the largest.
void add_rank(int ranks, PlanReport& plan, const batch::Inputs* inputs) {
  job::Job& job = plan.job;  // a tuned file may change it
  const model::ModelConfig& config = plan.config;
  simulation::RankPlan& rank = plan.rank.emplace();
  rank.ranks = ranks;
  rank.grid = simulation::grid_outcome(job, config, ranks, plan.gpus);
  resources::Resources& resources = rank.grid.resources;
  if (inputs != nullptr && rank.grid.refused.empty()) try {
      tune::settle_tuned(job, config, std::min(plan.prompts->longest_tokens, config.max_positions),
                         {}, resources);
    } catch (const InputError& error) {
      rank.grid.refused = error.what();
    }
  plan.kv = resources::kv_footprint(job, config, inputs, resources);
  if (!rank.grid.refused.empty()) return;
  resources.kv_dtype = plan.kv.dtype;
  resources.max_sequences = plan.kv.max_sequences;
  if (inputs != nullptr)
    resources.max_sequences = std::clamp<int64_t>(static_cast<int64_t>(inputs->requests().size()),
                                                  1, plan.kv.max_sequences);
  resources.max_batch_tokens = resources::resolve_batch_tokens(
      job, config, parallel::row_ranks(resources.degrees(), resources.prefill), plan.gpus);
  const auto cpu = kernels::make_cpu_backend();
  rank.needs = execute::needs_of_rank(0, job, config, resources, resources::float_type(job, config),
                                      plan.gpus ? kernels::gpu_traits() : kernels::traits_of(*cpu));
}

}  // namespace

int fewest_ranks(const job::Job::Parallel& parallel) {
  int product = 1;
  const int dp = parallel.dp.value_or(1), cp = parallel.cp.degree.value_or(1);
  const int sp = parallel.sp.value_or(1), tp = parallel.tp.value_or(1);
  const int pp = parallel.pp.value_or(1);
  for (const int degree : {dp, pp, cp, sp, tp})
    if (__builtin_mul_overflow(product, degree, &product) || product > max_ranks)
      fail<InputError>(
          "parallel.dp {} × pp {} × cp {} × sp {} × tp {} is more than {} ranks; lower one", dp, pp,
          cp, sp, tp, max_ranks);
  return product;
}

PlanReport plan_job(const PlanQuestion& question) {
  PlanReport plan;
  job::Job& job = plan.job;
  job = job_of(question);
  plan.config = question.model.empty()
                    ? job::read_model_config(job)
                    : job::model_config_of(job, model::config_of_preset_or_folder(question.model));
  std::optional<batch::Inputs> inputs;
  const bool own_prompts = !question.job_file.empty() && question.prompts.empty();
  if (own_prompts) try {
      job = job::load_job(question.job_file, question.overrides);
    } catch (const InputError& error) {  // the job itself is right: its prompts are missing
      plan.prompts_missing = error.what();
    }
  if (plan.prompts_missing.empty() && (own_prompts || !question.prompts.empty())) {
    inputs.emplace(job, plan.config);
    plan.prompts = resources::prompt_footprint(job, plan.config, *inputs);
  }
  if (!question.model.empty()) job.model.path = question.model;

  const int ranks = question.ranks.empty() ? fewest_ranks(job.parallel)
                                           : static_cast<int>(question.ranks.front());
  if (question.on_cluster()) {
    plan.cluster = cluster_report(question, job, ranks);
    plan.backend_by = "cluster";
    take_backend(job, plan.cluster->cluster.rank);
    plan.gpus = plan.cluster->cluster.rank.gpu;
    plan.kv = resources::kv_footprint(job, plan.config, nullptr, {});
  } else {
    if (job.backend) plan.backend_by = "job";
    // Unless the job says it, as a run on this machine would take it.
    plan.gpus = resources::computes_on_gpus(job, *comm::make_null_communicator());
  }
  plan.weights = resources::weight_footprint(job, plan.config, plan.gpus);
  if (plan.cluster)
    add_sweep(question, plan, inputs ? &*inputs : nullptr);
  else
    add_rank(ranks, plan, inputs ? &*inputs : nullptr);
  return plan;
}

simulation::ClusterReport plan_calibration(const PlanQuestion& question) {
  return cluster_report(question, {}, 1);
}

}  // namespace pecia::app
