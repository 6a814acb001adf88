#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/pecia/command.hpp"
#include "lib/core/error.hpp"
#include "lib/parallel/modes_text.hpp"
#include "lib/runtime/resources.hpp"
#include "lib/runtime/run_summary.hpp"
#include "lib/runtime/validate.hpp"

namespace pecia::app {
namespace {

constexpr int max_ranks = 1 << 20;

struct Options {
  std::filesystem::path job_file;
  std::vector<std::string> overrides;
  int ranks = 0;  // 0: as many as the job's degrees say
  bool modes = false, json = false;
};

int ranks_of(const runtime::Job::Parallel& parallel, int ranks) {
  if (ranks > 0) return ranks;
  if (!parallel.cp)
    fail<InputError>("parallel.cp auto takes any number of ranks; say how many with --ranks");
  int product = 1;
  for (const int degree : {parallel.dp, *parallel.cp, parallel.sp, parallel.tp})
    if (__builtin_mul_overflow(product, degree, &product) || product > max_ranks)
      fail<InputError>("parallel.dp {} × cp {} × sp {} × tp {} is more than {} ranks; lower one",
                       parallel.dp, *parallel.cp, parallel.sp, parallel.tp, max_ranks);
  return product;
}

/// What a run on so many ranks would do with the job as it is, or why it would not start.
nlohmann::ordered_json outcome(const runtime::Job& job, const model::ModelConfig& config,
                               int ranks) try {
  runtime::Resources resources;
  runtime::resolve_grid(job, config, ranks, resources);
  return {{"dp", resources.dp},
          {"cp", resources.cp},
          {"sp", resources.sp},
          {"tp", resources.tp},
          {"mode", runtime::mode_name(resources)},
          {"why", resources.why}};
} catch (const InputError& error) {
  return {{"refused", error.what()}};
}

std::string outcome_text(const nlohmann::ordered_json& outcome) {
  if (outcome.contains("refused"))
    return fmt::format("this job is refused: {}\n", outcome["refused"].get<std::string>());
  const auto why = outcome["why"].get<std::string>();
  return fmt::format("this job runs as {}{}{}\n", outcome["mode"].get<std::string>(),
                     why.empty() ? "" : "; auto: ", why);
}

int modes_of_job(const Options& options) {
  const runtime::Job job = runtime::read_job(options.job_file, options.overrides);
  const model::ModelConfig config = runtime::read_model_config(job);
  const int ranks = ranks_of(job.parallel, options.ranks), dp = job.parallel.dp;
  if (ranks % dp != 0)
    fail<InputError>(
        "parallel.dp {} does not divide {} ranks: use a dp that does, or other --ranks", dp, ranks);
  const parallel::ModelShape shape = runtime::shape_of(config);
  const auto result = outcome(job, config, ranks);
  if (options.json) {
    fmt::print("{}\n",
               dump({{"model",
                      {{"path", job.model.path.string()},
                       {"num_heads", shape.num_heads},
                       {"num_kv_heads", shape.num_kv_heads},
                       {"ffn", shape.ffn}}},
                     {"ranks", ranks},
                     {"dp", dp},
                     {"job", result},
                     {"modes", parallel::modes_json(ranks / dp, shape, job.reproducible)}}));
    return 0;
  }
  fmt::print("{}: {} query heads, {} KV heads, {} FFN columns · {} ranks, DP {}{}\n{}{}",
             job.model.path.string(), shape.num_heads, shape.num_kv_heads, shape.ffn, ranks, dp,
             job.reproducible == runtime::Reproducible::layout ? " · reproducible: layout" : "",
             parallel::modes_text(ranks / dp, shape, job.reproducible), outcome_text(result));
  return 0;
}

int plan_command(const Options& options) {
  if (!options.modes)
    fail<Unsupported>(
        "plan: predicted memory and times are not in this version; --modes lists which parallel "
        "modes are legal");
  if (!options.job_file.empty()) return modes_of_job(options);
  if (options.ranks > 0)
    fail<InputError>("plan --ranks needs a job file, whose model says what can be cut");
  if (options.json)
    fmt::print("{}\n", dump(parallel::modes_json()));
  else
    fmt::print("{}", parallel::modes_markdown());
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  const auto options = std::make_shared<Options>();
  CLI::App* plan = app.add_subcommand(
      "plan", "Says which parallel modes are legal, for a job's model or in general.");
  plan->add_option("job", options->job_file, "The job file; only its model's config.json is read")
      ->type_name("JOB.yaml");
  plan->add_option("--set", options->overrides, "Replaces a value of the job file, as in run")
      ->type_name("KEY.PATH=VALUE")
      ->allow_extra_args(false);
  plan->add_option("--ranks", options->ranks, "Ranks of the run (default: dp × cp × sp × tp)")
      ->check(CLI::Range(1, max_ranks));
  plan->add_flag("--modes", options->modes, "The legality table");
  plan->add_flag("--json", options->json, "JSON instead of text");
  plan->callback([options, &context] {
    context.chosen = [options, &context] {
      return on_first_rank(context.world, [&] { return plan_command(*options); });
    };
  });
}

}  // namespace pecia::app
