// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/command_line/options.hpp"
#include "apps/pecia/command.hpp"
#include "apps/pecia/papers_text.hpp"
#include "apps/pecia/plan_job.hpp"
#include "apps/pecia/plan_text.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/model/config/presets.hpp"
#include "lib/ranks/parallel/modes_text.hpp"
#include "lib/simulation/papers/papers.hpp"
#include "lib/work/cluster_files/cluster.hpp"
#include "lib/work/cluster_files/gpu_servers.hpp"
#include "lib/work/job/job_model.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::app {
namespace {

struct PlanOptions : PlanQuestion {
  std::string backend;  ///< in place of the job's; empty: the job's
  bool modes = false, json = false, papers = false, check = false;
};

int ranks_of(const job::Job::Parallel& parallel, int ranks) {
  if (ranks > 0) return ranks;
  if (!parallel.cp.degree)
    fail<InputError>("parallel.cp auto takes any number of ranks; say how many with --ranks");
  return fewest_ranks(parallel);
}

/// The one number of ranks that was given; 0: none was.
int only_ranks(const PlanOptions& options) {
  if (options.ranks.size() > 1)
    fail<InputError>("several --ranks are compared on a described cluster; name it with --cluster");
  return options.ranks.empty() ? 0 : static_cast<int>(options.ranks.front());
}

/// What tells of times needs a cluster.
void refuse_without_cluster(const PlanOptions& options) {
  for (const auto& [option, is_given] : {std::pair{"--request", !options.requests.empty()},
                                         {"--requests", !options.prompts.empty()},
                                         {"--calibrate", !options.calibrate.empty()},
                                         {"--cluster-file", !options.cluster_file.empty()},
                                         {"--trace", !options.trace.empty()}})
    if (is_given)
      fail<InputError>(
          "plan {} needs a --cluster or a --gpu, whose rates say how long requests take", option);
  only_ranks(options);
}

int modes_of_job(const PlanOptions& options) {
  const job::Job job = job::read_job(options.job_file, options.overrides);
  const model::ModelConfig config = job::read_model_config(job);
  const int ranks = ranks_of(job.parallel, only_ranks(options)), dp = job.parallel.dp.value_or(1);
  const int pp = job.parallel.pp.value_or(1);
  if (ranks % (int64_t{dp} * pp) != 0)
    fail<InputError>(
        "parallel.dp {}{} does not divide {} ranks: use {} that does, or other --ranks", dp,
        pp > 1 ? fmt::format(" × pp {}", pp) : "", ranks, pp > 1 ? "degrees" : "a dp");
  const int of_stage = ranks / dp / pp;
  const parallel::ModelShape shape = resources::shape_of(config);
  const simulation::GridOutcome outcome = simulation::grid_outcome(job, config, ranks, false);
  if (options.json) {
    fmt::print("{}\n", json_text(
                           nlohmann::ordered_json{
                               {"model",
                                {{"path", job.model.path.string()},
                                 {"num_heads", shape.num_heads},
                                 {"num_kv_heads", shape.num_kv_heads},
                                 {"ffn", shape.ffn}}},
                               {"ranks", ranks},
                               {"dp", dp},
                               {"pp", pp},
                               {"job", to_json(outcome)},
                               {"modes", parallel::modes_json(of_stage, shape, job.reproducible)}},
                           2));
    return 0;
  }
  fmt::print("{}: {} query heads, {} KV heads, {} FFN columns · {} ranks, DP {}{}\n{}{}",
             job.model.path.string(), shape.num_heads, shape.num_kv_heads, shape.ffn, ranks, dp,
             job.reproducible == parallel::Reproducible::layout ? " · reproducible: layout" : "",
             parallel::modes_text(of_stage, shape, job.reproducible), outcome_text(outcome));
  return 0;
}

int plan_of_job(const PlanOptions& options) {
  const simulation::PlanReport plan = plan_job(options);
  if (options.json) {
    fmt::print("{}\n", json_text(to_json(plan), 2));
    return 0;
  }
  fmt::print("{}", plan_text(plan));
  if (options.ranks.empty() && plan.rank && !plan.job.parallel.cp.degree)
    fmt::print("  parallel.cp auto takes any number of ranks: --ranks N says what N would do\n");
  if (!options.on_cluster())
    fmt::print(
        "  --cluster {} or a cluster file foresees how long requests take, and whether they fit; "
        "--modes lists the modes that are legal\n",
        fmt::join(cluster_files::cluster_presets(), ", "));
  return 0;
}

int plan_of_runs(const PlanOptions& options) {
  const simulation::ClusterReport plan = plan_calibration(options);
  fmt::print("{}", options.json ? json_text(to_json(plan), 2) + "\n" : cluster_plan_text(plan));
  return 0;
}

void check_ranks(const PlanOptions& options) {
  const int most = options.on_cluster() ? max_played_ranks : max_ranks;
  for (const int64_t ranks : options.ranks) {
    if (ranks < 1) fail<InputError>("--ranks {}: a run has at least one rank", ranks);
    if (ranks > most)
      fail<InputError>(
          "--ranks {}: a plan{} is for up to {} ranks, as it would take minutes for more; plan a "
          "part "
          "of the batch on fewer",
          ranks, options.on_cluster() ? " with times" : "", most);
  }
}

/// Nothing else that plans take may be given.
int plan_of_papers(const PlanOptions& options) {
  if (!options.job_file.empty() || !options.model.empty() || options.on_cluster() ||
      options.modes || !options.ranks.empty() || !options.requests.empty() ||
      !options.overrides.empty())
    fail<InputError>(
        "plan --papers has the papers' own models and machines; leave all but --json and --check "
        "out");
  const std::vector<simulation::papers::Paper> papers = simulation::papers::all_papers();
  fmt::print("{}", options.json ? json_text(to_json(papers), 2) + "\n" : papers_text(papers));
  if (!options.check) return 0;
  const std::vector<std::string> found = wrong(papers);
  for (const std::string& each : found) fmt::print(stderr, "pecia: {}\n", each);
  return found.empty() ? 0 : 1;
}

int plan_command(PlanOptions options) {
  if (options.papers) return plan_of_papers(options);
  check_ranks(options);
  if (!options.backend.empty()) options.overrides.push_back("backend=" + options.backend);
  if (!options.modes) {
    if (options.calibrate.empty() && options.job_file.empty() && options.model.empty())
      fail<InputError>(
          "plan needs a job file or a --model, or --modes for the table of legal modes; pecia plan "
          "--help");
    if (!options.on_cluster()) refuse_without_cluster(options);
    if (options.job_file.empty() && options.model.empty()) return plan_of_runs(options);
    return plan_of_job(options);
  }
  if (!options.job_file.empty()) return modes_of_job(options);
  if (!options.ranks.empty())
    fail<InputError>("plan --ranks needs a job file, whose model says what can be cut");
  if (options.json)
    fmt::print("{}\n", json_text(parallel::modes_json(), 2));
  else
    fmt::print("{}", parallel::modes_markdown());
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App& plan = command_line::add_command(
      app, "plan",
      "Says what a job's model and prompts need, and which parallel modes are legal, without "
      "weights and GPUs.",
      examples({
          "pecia plan job.yaml --ranks 8                    # what it needs, and how it would run",
          "pecia plan job.yaml --ranks 8 --set parallel.tp=2 --set kv.dtype=fp8",
          "pecia plan job.yaml --modes --ranks 8            # every legal grid for its model",
          "pecia plan --modes                               # the table itself",
          "pecia plan --model llama-3.1-8b --ranks 8 --cluster h100-gtt --request 128000:500",
          "pecia plan --model llama-3.3-70b --ranks 8,16 --gpu a100-80gb --per-node 4 --request "
          "100000:500x200",
          "pecia plan --cluster this.yaml --calibrate runs/books --cluster-file fitted.yaml",
          "pecia plan --papers --check                      # published figures beside foreseen "
          "ones",
      }),
      [options, &context] {
        context.chosen = [options, &context] {
          return on_first_rank(context.world, [&] { return plan_command(*options); });
        };
      });
  const auto add = [&](const command_line::Option& option) { add_option(plan, option); };
  add({.name = "job",
       .into = &options->job_file,
       .help = "The job file; its model's config.json and its prompts are read",
       .type = "JOB.yaml"});
  add({.name = "--set",
       .into = &options->overrides,
       .help = "Replaces a value of the job file, as in run",
       .type = "KEY.PATH=VALUE"});
  add({.name = "--backend",
       .into = &options->backend,
       .help = "Plans for CPUs or GPUs, whatever the job says and this machine has, as on a login "
               "node (default: the job's, the cluster's, this machine's)",
       .type = "BACKEND",
       .among = {"cpu", "cuda"}});
  add({.name = "--ranks",
       .into = &options->ranks,
       .help = fmt::format("Ranks of the run, up to {} (default: dp × cp × sp × tp, cp auto being "
                           "1); with --cluster "
                           "or --gpu several, up to {}, which are compared",
                           max_ranks, max_played_ranks),
       .type = "N,N,…"});
  add({.name = "--model",
       .into = &options->model,
       .help = fmt::format("Instead of the job's model: a folder, or one of {}",
                           fmt::join(model::model_presets(), ", ")),
       .type = "DIR|PRESET"});
  add({.name = "--cluster",
       .into = &options->cluster,
       .help =
           fmt::format("Foresees times on a cluster: a cluster file, or one of {}, or this: one "
                       "rank on this machine, which is measured",
                       fmt::join(cluster_files::cluster_presets(), ", ")),
       .type = "FILE|PRESET"});
  add({.name = "--gpu",
       .into = &options->gpu,
       .help = fmt::format("Foresees times on servers of these GPUs, without a cluster file: one "
                           "of {}; the network "
                           "that it assumes is part of the answer",
                           fmt::join(cluster_files::known_gpus(), ", ")),
       .type = "NAME",
       .excludes = "--cluster"});
  add({.name = "--per-node",
       .into = &options->per_server,
       .help = "GPUs in a server (default: as many as the GPU's board has)",
       .type = "N",
       .needs = "--gpu"});
  add({.name = "--request",
       .into = &options->requests,
       .help =
           "Foresees a batch of such requests (repeatable; default: the job's prompts). Each of "
           "COUNT requests has PROMPT new tokens after CACHED ones, and an answer of NEW tokens "
           "(default: one request, none, one token)",
       .type = "PROMPT[+CACHED][:NEW][xCOUNT]"});
  add({.name = "--requests",
       .into = &options->prompts,
       .help = "Foresees the batch of a prompt shard",
       .type = "FILE.h5",
       .excludes = "--request"});
  add({.name = "--calibrate",
       .into = &options->calibrate,
       .help = "Fits the cluster to a finished run, by its output folder, or to a file that "
               "pecia-bench ops --json wrote, and says how far off it was (repeatable)",
       .type = "RUN|BENCH.jsonl"});
  add({.name = "--cluster-file",
       .into = &options->cluster_file,
       .help = "Writes the cluster, fitted or not",
       .type = "OUT"});
  add({.name = "--trace",
       .into = &options->trace,
       .help =
           "With --cluster or --gpu: writes traces of the last request's passes, as a run would",
       .type = "DIR"});
  add({.name = "--modes",
       .into = &options->modes,
       .help = "The legality table, or with a job what is legal for its model on its ranks",
       .excludes = "--model"});
  add({.name = "--papers",
       .into = &options->papers,
       .help = "Figures of the papers that the modes come from, beside those foreseen here",
       .excludes = "--modes"});
  add({.name = "--check",
       .into = &options->check,
       .help = "Ends with status 1 where a figure is off by more than the table says it may be",
       .needs = "--papers"});
  add({.name = "--json", .into = &options->json, .help = "JSON instead of text"});
}

}  // namespace pecia::app
