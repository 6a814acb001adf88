// SPDX-License-Identifier: Apache-2.0
#include "lib/run/finish.hpp"

#include "lib/base/core/counted.hpp"
#include "lib/base/device/graph_stream.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/run/predict.hpp"

namespace pecia::run {
namespace {

const char* words_of(StopReason reason) {
  return reason == StopReason::wall_time ? "the wall time is nearly over"
                                         : "asked to stop by a signal";
}

/// Explains, in the log, codes that are no failure of the program: for any code but 0, Open MPI's
/// mpirun adds ten lines, the last of which say that the job was terminated.
std::string code_text(int code) {
  const bool by_mpirun = cluster::variable("OMPI_COMM_WORLD_SIZE").has_value();
  return fmt::format("exit code {}{}", code, by_mpirun ? ", which mpirun calls an error" : "");
}

const device::GraphCounts* graphs_of(const Setup& setup) {
  const auto* const stream = dynamic_cast<const device::GraphStream*>(setup.place.stream.get());
  return stream == nullptr ? nullptr : &stream->graph_counts();
}

/// What the GPU's libraries and graphs did is known at the end: they may refuse work at any time.
void add_gpu_facts(const Setup& setup, report::RunReport& report) {
  if (!setup.resources.gpus) return;
  report.modes.attention_library = setup.place.backend->attention_library();
  if (setup.config.experts) report.modes.expert_library = setup.place.backend->expert_library();
  if (const device::GraphCounts* graphs = graphs_of(setup))
    report.modes.graphs = {graphs->launched,  graphs->made,    graphs->piecemeal,    graphs->joint,
                           graphs->disagreed, graphs->why_not, graphs->why_not_joint};
}

void say_what_the_gpu_did(const Setup& setup) {
  if (!setup.resources.gpus) return;
  setup.log->info("attention of prompts was by {}", setup.place.backend->attention_library());
  const device::GraphCounts* const graphs = graphs_of(setup);
  if (graphs == nullptr) return;
  if (!graphs->why_not.empty())
    setup.log->warn("steps were launched without graphs: {}", graphs->why_not);
  else if (!graphs->why_not_joint.empty())
    setup.log->warn("sums over ranks stood between graphs, not in them: {}", graphs->why_not_joint);
}

void say_last_lines(const Ended& ended, const report::RunReport& report) {
  const batch::TurnCounts& left = ended.left;
  spdlog::logger& log = *ended.setup.log;
  say_what_the_gpu_did(ended.setup);
  const std::string keeping = report::kept_line(report.kv);
  if (!keeping.empty()) log.info(keeping);
  log.info(report::last_line(report, report_path(ended.setup.job)));
  if (left.unfinished() > 0 && ended.reason != StopReason::none)
    log.info("{}: {} open; the same command continues the run; {}", words_of(ended.reason),
             counted(left.unfinished(), "turn"), code_text(exit_drained));
  else if (left.unfinished() == 0 && left.failed > 0)
    log.info("{} failed: pecia inspect {} says why, --retry-failed runs failed turns again; {}",
             counted(left.failed, "turn"), ended.setup.job.output.string(),
             code_text(exit_failed_turns));
}

}  // namespace

int nothing_left(const Setup& setup, const RunResults& results) {
  const batch::TurnCounts& found = results.found;
  setup.log->info("nothing is left to do: {} done, {} failed{} · {}", counted(found.done, "turn"),
                  found.failed, found.failed > 0 ? " (--retry-failed takes them again)" : "",
                  (setup.job.output / "results.h5").string());
  if (found.failed > 0) setup.log->info("{}", code_text(exit_failed_turns));
  return found.failed > 0 ? exit_failed_turns : 0;
}

void write_report(const Ended& ended, const execute::Replica& replica, report::Recorder& recorder) {
  const Setup& setup = ended.setup;
  comm::Communicator& ordered = *setup.ranks.ordered;
  auto report = gather_report(ordered, ended.facts, replica, recorder, ended.totals, ended.seconds);
  if (setup.job.report.trace != job::Trace::off)
    write_traces(ordered, setup.job.output / "trace", setup.ranks.dp, setup.stage_index(),
                 recorder);
  if (!report) return;
  add_gpu_facts(setup, *report);
  report->modes.expected = setup.layout.expected;
  report->counts.partial = ended.left.partial;
  report->counts.open = ended.left.open;
  report->startup = ended.startup;
  report->peak = ended.peak;
  report->energy = ended.energy;
  report->command = cluster::own_command();
  report->began_unix_s = ended.begin.unix_s;
  report->earlier = ended.earlier_starts;
  report->all_done = ended.left.done;
  report->all_failed = ended.left.failed;
  report->predicted = ended.predicted;
  report::write_report(report_path(setup.job), *report);
  if (ended.left.unfinished() == 0)
    keep_deviation(*report,
                   fmt::format("{} · {} ranks · {}", setup.job.model.path.filename().string(),
                               setup.world().size(), resources::mode_name(setup.resources)),
                   *setup.log);
  say_last_lines(ended, *report);
}

int exit_code(const batch::TurnCounts& left, StopReason reason) {
  if (left.unfinished() > 0 && reason == StopReason::none)
    fail<SharedError>("{} turns were left open although the run was not asked to stop",
                      left.unfinished());
  if (left.unfinished() > 0) return exit_drained;
  return left.failed > 0 ? exit_failed_turns : 0;
}

}  // namespace pecia::run
