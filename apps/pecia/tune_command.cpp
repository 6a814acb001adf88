// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/command_line/options.hpp"
#include "apps/pecia/command.hpp"
#include "apps/pecia/tuned_text.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/run/tune.hpp"
#include "lib/simulation/tune/tuned_file.hpp"

namespace pecia::app {
namespace {

constexpr int most_rounds = 100;

struct TuneCommandOptions {
  run::TuneOptions tune;
  bool json = false;
};

int tune_command(const TuneCommandOptions& options, Context& context) {
  cluster::refuse_copies(cluster::launch_facts(), context.world.size());
  const run::TuneOutcome outcome = run::tune_job(
      options.tune, context.world, [] { comm::MpiEnvironment::abort(1); },
      context.watch.activity());
  if (!outcome.tuned) return outcome.exit_code;
  if (options.json)
    fmt::print("{}\n", json_text(tune::to_json(*outcome.tuned), 2));
  else
    fmt::print("{}", tuned_text(*outcome.tuned));
  fmt::print(stderr, "pecia: wrote {}\n", options.tune.output.string());
  return outcome.exit_code;
}

}  // namespace

void add_tune(CLI::App& app, Context& context) {
  const auto options = std::make_shared<TuneCommandOptions>();
  CLI::App& tune = command_line::add_command(
      app, "tune",
      "Measures what sparse attention loses and saves on texts of yours, and writes the file by "
      "which a job chooses its settings.",
      examples({
          "mpirun -np 4 --bind-to none pecia tune job.yaml --calibration texts.h5",
          "srun --mpi=pmix pecia tune job.yaml --calibration texts.h5 --drops 0,0.3,0.6,0.9",
          "pecia run job.yaml --set attention.drop='{file: tuned.json}' \\",
          "    --set attention.objective='{loss: 0.01}'     # the fastest that loses at most this",
      }),
      [options, &context] {
        context.chosen = [options, &context] { return tune_command(*options, context); };
      });
  const auto add = [&](const command_line::Option& option) { add_option(tune, option); };
  add({.name = "job",
       .into = &options->tune.job_file,
       .help = "The job file: its model, grid and attention are tuned",
       .type = "JOB.yaml",
       .required = true});
  add({.name = "--calibration",
       .into = &options->tune.calibration,
       .help = "Prompt shard of texts like the job's, each a request of one turn",
       .type = "TEXTS.h5",
       .required = true,
       .exists = command_line::Exists::file});
  add({.name = "--output",
       .into = &options->tune.output,
       .help = "The tuned file; the runs lie in a folder beside it meanwhile",
       .type = "FILE",
       .show_default = true});
  add({.name = "--set",
       .into = &options->tune.overrides,
       .help = "Replaces a value of the job file, as in run",
       .type = "KEY.PATH=VALUE"});
  add({.name = "--drops",
       .into = &options->tune.drops,
       .help = "Shares of tokens that level 2 leaves out, each of which is measured (default: "
               "0,0.02,0.05,0.1,0.2,0.4,0.7)",
       .type = "SHARE,…"});
  add({.name = "--deals",
       .into = &options->tune.deals,
       .help = "How a share is dealt out over layers and heads, each of which is measured: even, "
               "spread (in proportion to the standard deviation of attention), mass (where dropped "
               "tokens receive least)",
       .type = "DEAL,…",
       .show_default = true});
  add({.name = "--rounds",
       .into = &options->tune.rounds,
       .help = "How often each setting is timed; the best time of a prompt counts",
       .show_default = true,
       .range = {{1, most_rounds}}});
  add({.name = "--json", .into = &options->json, .help = "The file's contents instead of tables"});
}

}  // namespace pecia::app
