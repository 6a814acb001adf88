#include "lib/runtime/run_progress.hpp"

#include <unistd.h>

#include <iostream>

namespace pecia::runtime {
namespace {

report::ProgressOptions options_of(const Job& job) {
  report::ProgressOptions options = report::progress_options_of(STDERR_FILENO);
  if (job.report.progress == Progress::off) options.style = report::ProgressStyle::off;
  if (job.report.progress == Progress::lines) options.style = report::ProgressStyle::lines;
  if (job.report.progress == Progress::bar) options.style = report::ProgressStyle::bar;
  options.file = job.output / "progress.json";
  return options;
}

}  // namespace

RunProgress::RunProgress(const Job& job, const Inputs& inputs, const io::ResultsFile& results, int dp)
    : dp_(dp), totals_{inputs.num_turns(), inputs.prompt_tokens(), 0} {
  for (const InputRequest& request : inputs.requests()) {
    bool settled = true;
    for (size_t turn = 0; turn < inputs.prompt(request).turns.size(); ++turn) {
      const auto state = results.state(request.first_row + static_cast<int64_t>(turn));
      settled = settled && (state == io::TurnState::done || state == io::TurnState::failed);
    }
    totals_.work += request.work;
    if (settled) start_.work += request.work;
  }
  const Standing now = standing(results);
  start_.requests_done = now.done;
  start_.requests_failed = now.failed;
  progress_.emplace(totals_, start_, options_of(job), std::cerr);
}

report::ProgressState RunProgress::state(const Tally& tally) const {
  report::ProgressState state = start_;
  state.requests_done += tally.done;
  state.requests_failed += tally.failed;
  state.prompt_tokens += tally.prompt_tokens;
  state.output_tokens += tally.output_tokens;
  // Replicas take from one queue, so this one's share of the work stands for all.
  state.work += dp_ * (tally.prefill_flops + tally.decode_flops);
  return state;
}

void RunProgress::update(const Tally& tally) { progress_->update(state(tally)); }

void RunProgress::finish(const Tally& tally, const Standing& left) {
  report::ProgressState last = state(tally);
  last.requests_done = left.done;
  last.requests_failed = left.failed;
  // Answers that stopped early cost less than was set aside for them.
  if (left.unfinished() == 0) last.work = totals_.work;
  progress_->finish(last);
}

}  // namespace pecia::runtime
