// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/pecia/command.hpp"
#include "lib/cluster/launch.hpp"
#include "lib/core/error.hpp"
#include "lib/job/job.hpp"
#include "lib/run/run.hpp"
#include "lib/run/validate.hpp"

namespace pecia::app {
namespace {

struct Options {
  run::RunOptions run;
  bool print_default = false, print_output = false, validate = false;
};

int print_default() {
  fmt::print("{}", job::default_yaml());
  return 0;
}

/// Reads the job file alone, so that scripts learn the folder whatever else is missing.
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

int run_command(const Options& options, Context& context) {
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
  const auto options = std::make_shared<Options>();
  CLI::App* run = app.add_subcommand(
      "run", "Runs a batch under mpirun, srun or alone, and continues an unfinished one.");
  run->add_option("job", options->run.job_file, "The job file (YAML or JSON)")
      ->type_name("JOB.yaml");
  run->add_option("--set", options->run.overrides,
                  "Replaces a value of the job file, as generation.seed=7; may be repeated")
      ->type_name("KEY.PATH=VALUE")
      ->allow_extra_args(false);
  run->add_flag("--fresh", options->run.fresh,
                "Starts over instead of continuing the run in the output folder");
  run->add_flag("--retry-failed", options->run.retry_failed, "Takes failed requests again");
  run->add_flag("--validate", options->validate,
                "Checks the job file, the model folder, the inputs and the grid of the ranks it is "
                "started on, and runs nothing");
  run->add_flag("--print-default", options->print_default,
                "Prints a complete commented job file and runs nothing");
  run->add_flag("--print-output", options->print_output,
                "Prints the output folder that job file and --set give, and runs nothing");
  run->footer(examples({
      "pecia run --print-default > job.yaml                    # a job file to edit",
      "pecia run --validate job.yaml                           # checks it, computes nothing",
      "mpirun -np 4 --bind-to none pecia run job.yaml          # four ranks of this machine",
      "srun --mpi=pmix pecia run job.yaml                      # the ranks of a Slurm step",
      "pecia run job.yaml --set generation.seed=7 --set output=runs/second",
      "pecia run job.yaml --set limits.wall_time=3:50:00 --set kv.memory=12G",
      "pecia run job.yaml --retry-failed                       # after the reason is gone",
  }));
  run->callback([options, &context] {
    context.chosen = [options, &context] { return run_command(*options, context); };
  });
}

}  // namespace pecia::app
