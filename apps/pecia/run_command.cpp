// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/command_line/options.hpp"
#include "apps/pecia/command.hpp"
#include "lib/cluster/launch.hpp"
#include "lib/core/error.hpp"
#include "lib/job/job.hpp"
#include "lib/run/run.hpp"
#include "lib/run/validate.hpp"

namespace pecia::app {
namespace {

struct RunCommandOptions {
  run::RunOptions run;
  bool print_default = false, print_output = false, validate = false;
};

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
  fmt::print(stderr, "{}: {}", options.job_file.string(), run::to_text(found, job));
  return found.any_can_run ? 0 : 2;
}

int run_command(const RunCommandOptions& options, Context& context) {
  comm::Communicator& world = context.world;
  if (options.print_default) return on_first_rank(world, print_default);
  if (options.run.job_file.empty())
    fail<InputError>("run needs a job file; pecia run --print-default > job.yaml makes one");
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
          "pecia run job.yaml --set generation.seed=7 --set output=runs/second",
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
  add({.name = "--validate",
       .into = &options->validate,
       .help = "Checks the job file, the model folder, the inputs and the grid of the ranks it is "
               "started on, and runs nothing"});
  add({.name = "--print-default",
       .into = &options->print_default,
       .help = "Prints a complete commented job file and runs nothing"});
  add({.name = "--print-output",
       .into = &options->print_output,
       .help = "Prints the output folder that job file and --set give, and runs nothing"});
}

}  // namespace pecia::app
