// SPDX-License-Identifier: Apache-2.0
#include "lib/run/run.hpp"

#include <unistd.h>

#include <algorithm>

#include "lib/engine/execute/replica.hpp"
#include "lib/engine/execute/team_loop.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/run/energy.hpp"
#include "lib/run/finish.hpp"
#include "lib/run/first_lines.hpp"
#include "lib/run/load_weights.hpp"
#include "lib/run/open_results.hpp"
#include "lib/run/parking.hpp"
#include "lib/run/planning.hpp"
#include "lib/run/predict.hpp"
#include "lib/run/read_inputs.hpp"
#include "lib/run/rounds.hpp"
#include "lib/run/setup.hpp"
#include "lib/run/share_prefixes.hpp"
#include "lib/run/signals.hpp"
#include "lib/run/watch_ranks.hpp"
#include "lib/settle/fitted_rule.hpp"
#include "lib/settle/link_costs.hpp"
#include "lib/settle/measure/kept_peak.hpp"
#include "lib/settle/measure/product_rates.hpp"
#include "lib/settle/memory.hpp"
#include "lib/settle/settle.hpp"

namespace pecia::run {
namespace {

report::TraceDetail trace_detail(job::Trace trace) {
  if (trace == job::Trace::full) return report::TraceDetail::full;
  return trace == job::Trace::off ? report::TraceDetail::off : report::TraceDetail::summary;
}

execute::Replica::Settings settings_of_rank(const Setup& setup, const RunInputs& inputs,
                                            const parallel::LinkCosts& link_costs,
                                            const Parking& parking) {
  execute::Replica::Settings settings = execute::Replica::settings_of(setup.job, setup.resources);
  settings.places = setup.ranks.replica_places();
  settings.grammars = inputs.grammars;
  settings.link_costs = link_costs;
  settings.parking = parking.places;
  return settings;
}

/// The types of matrices and of tensors that are not codes, on the rank that speaks for all: stages may
/// have others. Collective.
struct HeldTypes {
  DType matrices = DType::fp32, plain = DType::fp32;

  template <typename A>
  void visit(A& archive) {
    archive(matrices), archive(plain);
  }
};
HeldTypes types_of(const Setup& setup, const LoadedWeights& weights) {
  return comm::of_first(*setup.ranks.ordered,
                        HeldTypes{weights.held(), weights.views().plain_type()});
}

/// What the rounds of a run have in common.
struct Run {
  Setup& setup;
  const LoadedWeights& weights;
  const DrainSignals& signals;
  watch::Watch& watch;
  std::filesystem::path board;
};

/// Settles the peak for the report and later runs. That it cannot be kept fails no run. Collective.
void keep_peak(const Setup& setup, const attention::Compute& compute, DType held,
               std::optional<report::PeakReport>& peak) {
  if (!peak) return;
  try {
    measure::settle_peak(setup.world(), compute, held, *peak);
  } catch (const SystemError& error) {
    setup.log->warn("the machine's peak is not kept for later runs: {}", error.what());
  }
}

/// Runs the requests of the setup's job. `begin`: of the round. Collective; returns the exit code.
int run_round(const Run& run, const RunBegin& begin, report::Startup& startup) {
  Setup& setup = run.setup;
  comm::Communicator& world = setup.world();
  Activity& activity = *run.watch.activity();
  const auto begin_phase = [&](const char* name) {
    activity.phase = name;
    startup.begin(name);
  };
  cluster::EnergyMeter meter(metered_by(setup));
  begin_phase("read_inputs");
  RunInputs inputs = read_inputs(setup);
  const bool needs_head = inputs.get() != nullptr && inputs.get()->needs_head();
  const bool some_needs_head = world.all_reduce_max(needs_head ? 1 : 0) > 0;
  comm::together(world, [&] {
    if (some_needs_head && setup.stage.stage.ends()) require_head(run.weights.views(), setup.job);
  });
  share_prefixes(setup, inputs);
  const HeldTypes types = types_of(setup, run.weights);
  const settle::Facts known{setup.config, setup.ranks,  setup.place, types.matrices,
                            types.plain,  inputs.get(), setup.kept,  setup.tuned};
  setup.resources = settle::with_memory(known, setup.job, std::move(setup.resources));

  begin_phase("measure");
  report::Recorder recorder(trace_detail(setup.job.report.trace));
  recorder.publish_to(activity);
  const attention::Compute compute{*setup.place.device, *setup.place.stream, *setup.place.backend,
                                   recorder};
  settle::Rates rates;
  // Expected times of passes are computed from the speed of our own products.
  rates.product_flops =
      world.all_reduce_sum(measure::measure_product_flops(compute, types.matrices));
  comm::Communicator& ranks = *setup.ranks.replica;
  auto tensors = resources::tensor_group(setup.job, ranks, setup.place);
  rates.ring =
      settle::ring_rates(known, setup.resources, tensors ? *tensors : ranks, compute, *setup.log);
  settle::Settled settled = settle::settle(known, rates, {setup.job, setup.resources});
  setup.job = settled.job;
  setup.resources = settled.resources;
  if (setup.resources.sparse) setup.resources.sparse->counts_shares = setup.options.counts_shares;
  const parallel::LinkCosts link_costs =
      settle::link_costs(known, tensors ? *tensors : ranks, compute, setup.resources);
  const auto fitted_rule = settle::fitted_rule(known, compute, setup.resources);
  const Parking parking = parking_of_rank(setup, compute);
  execute::Replica replica(ranks, std::move(tensors), setup.stage, run.weights.views(), compute,
                           settings_of_rank(setup, inputs, link_costs, parking));
  if (!replica.tensors_by().empty() && ranks.size() > 1)
    setup.log->info("tensors travel by {}", replica.tensors_by());
  measure::Measured measured = settle::measured_choices(known, settled, rates.ring, link_costs,
                                                        setup.layout, setup.products, replica);
  measured.fitted_rule = fitted_rule;
  setup.resources.shift_threshold = measured.shift_threshold;
  setup.kept = to_json(measured, setup.resources);

  begin_phase("open_results");
  RunResults results = open_results(setup, run.weights, inputs, measured, run.board);
  if (results.is_finished) return nothing_left(setup, results);

  begin_phase("measure_peak");
  std::optional<report::PeakReport> peak;
  if (setup.job.report.peak == job::Peak::measured)
    peak =
        measure::peak_of_ranks(world, compute, types.matrices, setup.resources.threads.cache_bytes);
  const RunFacts facts = facts_of(setup, run.weights);
  const Start start = start_of(setup.resources, facts.compute);
  say_first_lines(facts, setup, inputs, results, start, rates.product_flops);

  begin_phase("foresee");
  const std::optional<report::Prediction> predicted =
      predict({setup, run.weights, inputs, results, measured, peak, rates.product_flops,
               begin.seconds_since()},
              compute);
  if (predicted) setup.log->info("{}", prediction_line(*predicted));

  begin_phase("schedule");
  Planning planning(
      {setup, run.weights, inputs, results, measured, facts, start, parking, rates.product_flops},
      begin, run.signals, replica);
  startup.end();

  const auto stop_requested = [&] { return planning.stop().reason() != StopReason::none; };
  const execute::ReplicaTotals totals =
      setup.resources.elastic || setup.resources.pp > 1
          ? execute::run_teams(ranks, replica, recorder, planning.plans(), stop_requested,
                               [&] { planning.poll(); })
          : execute::run_replica(ranks, replica, recorder, planning.plans(), stop_requested);
  activity.phase = "finish";
  planning.finish_with(totals);

  const StopReason reason = planning.agreed_reason();
  const batch::TurnCounts left =
      batch::count_turns(setup.is_root() ? &*results.file : nullptr, world);
  if (setup.is_root()) {
    planning.progress().finish(left);
    if (keeps_kv(setup)) execute::sweep_kv_saves(setup.job.output / "kv", *results.file, false);
    keep_times(setup.job.output, start, planning.scheduler().times(),
               planning.scheduler().team_times());
  }
  const double seconds = begin.seconds_since();
  const std::optional<report::EnergyReport> energy = energy_of_run(setup.world(), meter.used());
  recorder.wait_for_times();
  keep_peak(setup, compute, types.matrices, peak);
  write_report({setup, facts, begin, startup, totals, left, reason, peak, energy,
                results.earlier_starts, seconds, predicted},
               replica, recorder);
  return exit_code(left, reason);
}

/// Runs the turns of the round that failed again, as often as limits.retries says. `code`: of the
/// round. Collective; returns the exit code.
int retry_failed_turns(Run& run, const RunBegin& begin, int code) {
  Setup& setup = run.setup;
  const int retries = setup.job.limits.retries;
  const RunOptions as_asked = setup.options;
  setup.options.fresh = false;
  setup.options.retry_failed = true;
  for (int retry = 1; retry <= retries && code == exit_failed_turns; ++retry) {
    setup.log->info("turns that failed are run again, as limits.retries says: {} of {}", retry,
                    retries);
    std::optional<double> left_s;
    if (setup.drain_s) left_s = *setup.drain_s - begin.seconds_since();
    const RunBegin begin_of_retry;
    report::Startup startup("read_job", report::unix_time());
    const job::Job same = setup.asked;
    set_up_round(same, left_s, setup);
    run.board = watch_ranks(run.watch, setup.job, setup.world(), *setup.log, setup.stage_index());
    code = run_round(run, begin_of_retry, startup);
  }
  setup.options = as_asked;
  return code;
}

/// Runs rounds as long as others are asked for. `begin`: of the run; `code`: of the round that has
/// just ended. Collective; returns the exit code.
int run_further_rounds(Run& run, const RunBegin& begin, int code) {
  Setup& setup = run.setup;
  comm::Communicator& world = setup.world();
  LineReader lines(STDIN_FILENO);
  const std::optional<double> drain_s = setup.drain_s;
  const auto left_s = [&]() -> std::optional<double> {
    if (!drain_s) return {};
    return *drain_s - begin.seconds_since();
  };
  int worst = code;
  for (;;) {
    if (setup.is_root()) tell_end_of_round(setup.job, code);
    if (code == exit_drained) return code;
    run.watch.activity()->phase = "wait_for_round";
    DrainSignals::stops_after("the wait for another round");
    const NextRound next = next_round(
        world, lines, [&] { return DrainSignals::received() || left_s().value_or(1) <= 0; });
    if (next.stopped) setup.log->info("stopped while it waited for another round");
    if (!next.line) return next.stopped ? exit_drained : worst;
    const RunBegin begin_of_round;
    report::Startup startup("read_job", report::unix_time());
    set_up_round(job_of_round(setup.asked, setup.options, *next.line, world), left_s(), setup);
    run.board = watch_ranks(run.watch, setup.job, world, *setup.log, setup.stage_index());
    code = run_round(run, begin_of_round, startup);
    code = retry_failed_turns(run, begin_of_round, code);
    worst = std::max(worst, code);
  }
}

}  // namespace

int run_job(const RunOptions& options, comm::Communicator& world, watch::Watch& watch,
            report::Startup& startup) {
  const RunBegin begin;
  DrainSignals signals;  // first, so that a signal at startup also drains
  startup.begin("read_job");
  Setup setup = set_up(options, world);
  std::filesystem::path board =
      watch_ranks(watch, setup.job, world, *setup.log, setup.stage_index());

  startup.begin("load_weights");
  watch.activity()->phase = "load_weights";
  const LoadedWeights weights = load_weights(setup);
  Run run{setup, weights, signals, watch, std::move(board)};
  int code = run_round(run, begin, startup);
  code = retry_failed_turns(run, begin, code);
  if (options.rounds) code = run_further_rounds(run, begin, code);
  if (code == exit_drained) signals.ignore_later_ones();
  return code;
}

}  // namespace pecia::run
