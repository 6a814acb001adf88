// SPDX-License-Identifier: Apache-2.0
#include "lib/run/setup.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "lib/base/core/build_info.hpp"
#include "lib/base/report/log.hpp"
#include "lib/files/results/results.hpp"
#include "lib/model/config/stage.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/run/same_model.hpp"
#include "lib/run/stop.hpp"
#include "lib/settle/levels.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/job/job_model.hpp"

namespace pecia::run {
namespace {

job::Job agreed_job(const RunOptions& options, comm::Communicator& world) {
  std::optional<job::Job> job;
  comm::together(world, [&] {
    job = job::load_job(options.job_file, options.overrides);
    job::refuse_unimplemented(*job);
  });
  const BuildInfo& build = build_info();
  comm::require_same(world, "programs", build.version + build.commit + build.compiler);
  comm::require_same(world, "job files", job::to_yaml(*job));
  return std::move(*job);
}

/// Calls `read` for files of the model's folder on every rank. Collective.
void read_files_of_model(comm::Communicator& world, const std::string& host,
                         const std::function<void()>& read) {
  comm::together(world, [&] {
    try {
      read();
    } catch (const InputError& error) {
      // What is wrong everywhere is said by rank 0. Otherwise it matters where.
      if (world.rank() == 0) throw;
      fail<InputError>("rank {} on host {}: {}", world.rank(), host, error.what());
    }
  });
}

/// Reads the model's configuration, the same on all ranks. Collective.
model::ModelConfig same_config(const job::Job& job, comm::Communicator& world) {
  const std::string host = cluster::host_name();
  model::ModelConfig config;
  model::Fingerprint mine;
  read_files_of_model(world, host, [&] {
    config = job::read_model_config(job);
    mine = model::fingerprint_of_settings(job.model.path);
  });
  require_same_model(world, host, mine, job.model.path);
  return config;
}

/// Makes sure that all ranks have the same model. Collective.
model::Fingerprint same_model(const job::Job& job, comm::Communicator& world) {
  const std::string host = cluster::host_name();
  model::Fingerprint mine;
  read_files_of_model(world, host, [&] { mine = model::fingerprint_of(job.model.path); });
  require_same_model(world, host, mine, job.model.path);
  return mine;
}

/// What an earlier start with the same results has measured; "" where there is none. Collective over
/// `world`; every rank gets it.
std::string kept_measurement(const job::Job& job, bool fresh, comm::Communicator& world) {
  const auto path = job.output / "results.h5";
  std::string measured;
  std::error_code unreachable;  // opening the results reports what is wrong with the folder
  if (world.rank() == 0 && !fresh && std::filesystem::exists(path, unreachable)) {
    try {
      measured = io::ResultsFile(path).layout().measured;
    } catch (const Error&) {
      // Opening the results for the run reports what is wrong with them.
    }
  }
  return comm::of_first(world, measured);
}

}  // namespace

Setup set_up(const RunOptions& options, comm::Communicator& world) {
  const job::Job asked = agreed_job(options, world);
  job::Job job = asked;
  world.set_wait_timeout(std::chrono::seconds(std::llround(std::ceil(job.limits.wait_s))));
  resources::Resources resources;
  std::optional<double> drain_s;
  resources.gpus = resources::computes_on_gpus(job, world);
  comm::together(world, [&] { drain_s = seconds_to_drain(job.limits); });
  model::ModelConfig config = same_config(job, world);
  comm::together(world, [&] {
    resources::resolve_grid(job, config, world.size(), resources);
    if (job::is_fp8(job.model.dtype)) resources::require_fp8_widths(config, resources);
  });
  comm::together(world, [&] { resources.threads = resources::threads_of_rank(world); });
  std::string kept = kept_measurement(job, options.fresh, world);
  measure::ProductChoice products;
  if (!resources.gpus)
    products = measure::choose_products(job, resources::held_dtype(job, config), resources.threads,
                                        world, measure::kept_products_of_run(kept));
  auto place = resources::make_compute_place(job, resources.gpus, resources.threads, world,
                                             products.products);
  const auto places = cluster::find_places(world, job.topology);
  settle::LayoutChoice layout;
  if (!options.by_rule)
    layout = settle::choose_layout({job, config, kept, place, resources.threads, places}, world);
  if (layout.layout) {
    layout.layout->apply_to(job);
    resources::resolve_grid(job, config, world.size(), resources);
  }
  settle::Settled before{job, resources};
  if (!layout.why.empty()) {
    resources.reasons.add_first(layout.why);
    before.resources.reasons.add_first("the layout of the first round");
  }
  settle::Ranks ranks = settle::make_ranks(places, resources, world);
  model::ModelConfig stage = model::stage_of(config, resources.pp, ranks.stage);
  auto tuned = settle::settle_tuned(config, ranks, resources, job);
  auto log = report::make_logger(ranks.ordered->rank(), world.size());
  model::Fingerprint model = same_model(job, world);  // after all that costs no read of weights
  if (options.quiet) log->set_level(std::max(log->level(), spdlog::level::warn));
  if (resources.gpus) {
    log->info("attention of prompts by {}", place.backend->attention_library());
    if (config.experts) log->info("experts of prompts by {}", place.backend->expert_library());
  }
  return {options,
          asked,
          std::move(job),
          std::move(config),
          std::move(stage),
          std::move(model),
          std::move(resources),
          std::move(tuned),
          std::move(kept),
          std::move(layout),
          drain_s,
          std::move(products),
          std::move(place),
          std::move(ranks),
          std::move(log),
          std::move(before)};
}

void set_up_round(const job::Job& round, std::optional<double> end_s, Setup& setup) {
  setup.job = setup.before_inputs.job;
  for (job::Job* job : {&setup.asked, &setup.job})
    job->input = round.input, job->output = round.output;
  setup.resources = setup.before_inputs.resources;
  setup.layout.expected = {};  // it was for the inputs of the first round
  setup.products.is_new = false;
  ++setup.round;
  setup.drain_s = end_s;
  std::string kept = kept_measurement(setup.job, setup.options.fresh, setup.world());
  if (!kept.empty()) setup.kept = std::move(kept);
  setup.tuned = settle::settle_tuned(setup.config, setup.ranks, setup.resources, setup.job);
}

bool keeps_kv(const Setup& setup) {
  return setup.job.kv.save.on && setup.job.generation.prompt_logprobs == 0;
}

}  // namespace pecia::run
