// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line/options.hpp"
#include "apps/pecia/command.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/escaped.hpp"
#include "lib/base/core/json.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/run/run.hpp"
#include "lib/run/validate.hpp"
#include "lib/work/job/glob_pattern.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::app {
namespace {

struct RunCommandOptions {
  run::RunOptions run;
  std::filesystem::path output, model;
  std::vector<std::string> input;
  int64_t limit = 0;
  bool print_default = false, print_output = false, validate = false;
};

/// "output=\"/here/runs/a\"": paths of the command line are relative to the current folder, those
/// of a job file to its own.
std::string override_of(const char* key, const std::filesystem::path& path) {
  return fmt::format("{}={}", key,
                     json_text(nlohmann::json(std::filesystem::absolute(path).string())));
}

/// The pattern from the current folder, whose own *, ? and [ match themselves. The name of an existing
/// file is no pattern.
std::string absolute_pattern(const std::filesystem::path& pattern) {
  const std::filesystem::path here = std::filesystem::current_path();
  std::error_code ignored;
  if (pattern.is_absolute() || std::filesystem::exists(here / pattern, ignored))
    return (here / pattern).string();
  return (std::filesystem::path(job::escaped_for_glob(here.string())) / pattern).string();
}

/// What --model, --input, --output and --limit say, as --set.
void add_short_options(RunCommandOptions& options) {
  std::vector<std::string>& overrides = options.run.overrides;
  if (!options.model.empty()) overrides.push_back(override_of("model.path", options.model));
  if (!options.output.empty()) overrides.push_back(override_of("output", options.output));
  if (options.limit > 0) overrides.push_back(fmt::format("batch.limit={}", options.limit));
  if (options.input.empty()) return;
  auto patterns = nlohmann::json::array();
  for (const std::string& pattern : options.input) patterns.push_back(absolute_pattern(pattern));
  overrides.push_back("input=" + json_text(patterns));
}

int print_default() {
  fmt::print("{}", job::default_yaml());
  return 0;
}

/// Reads only the job file, so that scripts learn the folder whatever else is missing.
int print_output(const run::RunOptions& options) {
  fmt::print("{}\n", job::read_job(options.job_file, options.overrides).output.string());
  return 0;
}

int validate(const run::RunOptions& options, int num_ranks) {
  const job::Job job = job::load_job(options.job_file, options.overrides);
  job::refuse_unimplemented(job);
  const run::Validation found = run::validate(job, num_ranks, options.fresh, options.retry_failed);
  fmt::print(stderr, "{}",
             escaped_lines(options.job_file.string() + ": " + run::to_text(found, job)));
  return found.any_can_run ? 0 : 2;
}

int run_command(RunCommandOptions options, Context& context) {
  comm::Communicator& world = context.world;
  if (options.print_default) return on_first_rank(world, print_default);
  if (options.run.job_file.empty())
    fail<InputError>("run needs a job file; pecia run --print-default > job.yaml makes one");
  add_short_options(options);
  if (options.print_output) return on_first_rank(world, [&] { return print_output(options.run); });
  if (options.validate)
    return on_first_rank(world, [&] { return validate(options.run, world.size()); });
  cluster::refuse_copies(cluster::launch_facts(), world.size());
  return run::run_job(options.run, world, context.watch, context.startup);
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  const auto options = std::make_shared<RunCommandOptions>();
  CLI::App& run = command_line::add_command(
      app, "run", "Runs a batch under mpirun, srun or alone, and continues an unfinished one.",
      examples({
          "pecia run --print-default > job.yaml                    # a job file to edit",
          "pecia run --validate job.yaml                           # checks it, computes nothing",
          "mpirun -np 4 --bind-to none pecia run job.yaml          # four ranks of this machine",
          "srun --mpi=pmix pecia run job.yaml                      # the ranks of a Slurm step",
          "pecia run job.yaml --model models/Qwen3-8B --input 'prompts/*.h5' --output runs/second",
          "pecia run job.yaml --set generation.seed=7 --output runs/third",
          "pecia run job.yaml --set limits.wall_time=3:50:00 --set kv.memory=12G",
          "pecia run job.yaml --retry-failed                       # after the reason is gone",
      }),
      [options, &context] {
        context.chosen = [options, &context] { return run_command(*options, context); };
      });
  const auto add = [&](const command_line::Option& option) { add_option(run, option); };
  add({.name = "job",
       .into = &options->run.job_file,
       .help = "The job file (YAML or JSON)",
       .type = "JOB.yaml"});
  add({.name = "--set",
       .into = &options->run.overrides,
       .help = "Replaces a value of the job file, as generation.seed=7; may be repeated",
       .type = "KEY.PATH=VALUE"});
  add({.name = "--model",
       .into = &options->model,
       .help = "The model's folder: --set model.path, relative to the current folder",
       .type = "DIR"});
  add({.name = "--input",
       .into = &options->input,
       .help = "Prompt shards: --set input, relative to the current folder; may be repeated",
       .type = "PATTERN"});
  add({.name = "--limit",
       .into = &options->limit,
       .help = "Only the first N requests: --set batch.limit",
       .type = "N",
       .sign = command_line::Sign::positive});
  add({.name = "--output",
       .into = &options->output,
       .help = "The output folder: --set output, relative to the current folder",
       .type = "DIR"});
  add({.name = "--fresh",
       .into = &options->run.fresh,
       .help = "Starts over instead of continuing the run in the output folder"});
  add({.name = "--retry-failed",
       .into = &options->run.retry_failed,
       .help = "Takes failed requests again"});
  add({.name = "--rounds",
       .into = &options->run.rounds,
       .help =
           "Then takes further rounds from standard input while the ranks and the weights stay: "
           "lines as {\"input\": [\"prompts.h5\"], \"output\": \"folder\"}. A line on standard "
           "output says how each round has ended"});
  add({.name = "--validate,--dry-run",
       .into = &options->validate,
       .help = "Checks the job file, the model folder, the inputs and the grid of the ranks it is "
               "started on, and runs nothing"});
  add({.name = "--print-default",
       .into = &options->print_default,
       .help = "Prints a complete commented job file and runs nothing"});
  add({.name = "--print-output",
       .into = &options->print_output,
       .help = "Prints the output folder that job file and options give, and runs nothing"});
}

}  // namespace pecia::app
