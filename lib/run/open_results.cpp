// SPDX-License-Identifier: Apache-2.0
#include "lib/run/open_results.hpp"

#include "lib/base/core/files.hpp"
#include "lib/base/report/run_report.hpp"
#include "lib/engine/execute/kv_saves.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/watch/watch_board.hpp"
#include "lib/work/batch/identity.hpp"

namespace pecia::run {
namespace {

io::ResultsLayout layout_of(const Setup& setup, const LoadedWeights& weights,
                            const RunInputs& inputs, const measure::Measured& measured) {
  io::ResultsLayout layout = inputs.inputs->layout();
  layout.identity =
      batch::identity(setup.job, setup.config, weights.stored.checkpoint(), setup.model.contents(),
                      setup.resources.kv_dtype, inputs.earlier.input_sha256);
  layout.settings = {batch::turn_settings(setup.job)};
  layout.measured = to_json(measured, setup.resources);
  return layout;
}

}  // namespace

RunResults open_results(const Setup& setup, const LoadedWeights& weights, const RunInputs& inputs,
                        const measure::Measured& measured, const std::filesystem::path& board) {
  const job::Job& job = setup.job;
  const RunOptions& options = setup.options;
  RunResults results;
  comm::together(setup.world(), [&] {
    if (!setup.is_root()) return;
    refuse_foreign_link(job.output / "trace");
    results.output = std::make_unique<batch::Output>(
        job.output, layout_of(setup, weights, inputs, measured), options.fresh,
        options.retry_failed, [&](const std::string& text) { setup.log->info(text); },
        [&](const std::string& key, int64_t row) { return inputs.inputs->depends_on(key, row); });
    for (const std::string& warning : results.output->warnings()) setup.log->warn(warning);
    results.file.emplace(results.output->results_path());
    if (results.output->continues())
      results.earlier_starts = report::read_starts(job.output / "progress.json");
    if (keeps_kv(setup))
      execute::sweep_kv_saves(execute::make_kv_folder(job.output, job.kv.save.folder),
                              *results.file, options.fresh);
    if (!board.empty()) watch::WatchBoard::remove_others(board);
  });
  results.found = batch::count_turns(results.file ? &*results.file : nullptr, setup.world());
  const bool reported =
      setup.is_root() &&
      report::is_final_report(report_path(job), results.found.done, results.found.failed);
  const bool any_reported = setup.world().all_reduce_max(reported ? 1 : 0) > 0;
  results.is_finished = results.found.unfinished() == 0 && any_reported;
  return results;
}

std::filesystem::path report_path(const job::Job& job) {
  return job.output / "report.json";
}

}  // namespace pecia::run
