#include "lib/runtime/run_progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>

namespace pecia::runtime {
namespace {

constexpr double flops_per_count = 1e6;  // so that 64 bits last

report::ProgressOptions options_of(const Job& job) {
  report::ProgressOptions options = report::progress_options_of(STDERR_FILENO);
  if (job.report.progress == Progress::off) options.style = report::ProgressStyle::off;
  if (job.report.progress == Progress::lines) options.style = report::ProgressStyle::lines;
  if (job.report.progress == Progress::bar) options.style = report::ProgressStyle::bar;
  options.file = job.output / "progress.json";
  return options;
}

}  // namespace

RunProgress::RunProgress(comm::Communicator& world) {
  for (auto& counter : counters_) counter = world.make_counter();
}

void RunProgress::show(const Job& job, const Inputs& inputs, const io::ResultsFile& results) {
  totals_ = {.requests = static_cast<int64_t>(inputs.requests().size()),
             .turns = inputs.num_turns(),
             .prompt_tokens = inputs.prompt_tokens()};
  replays_ = job.batch.arrivals == Arrivals::replay;
  for (const InputRequest* request : open_requests(inputs, results))
    if (replays_)
      totals_.last_arrival_s =
          std::max(totals_.last_arrival_s, inputs.prompt(*request).arrival_s.value());
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
  start_.turns_done = now.done;
  start_.turns_failed = now.failed;
  shown_.emplace(totals_, start_, options_of(job), std::cerr);
}

void RunProgress::update(const Tally& tally) {
  constexpr std::chrono::milliseconds interval(100);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_added_ >= interval) {
    last_added_ = now;
    add(tally);
  }
  if (shown_) shown_->update(state());
}

void RunProgress::add(const Tally& tally) {
  const std::array<int64_t, num_counters> totals{
      tally.done, tally.failed, tally.prompt_tokens, tally.output_tokens,
      static_cast<int64_t>((tally.prefill_flops + tally.decode_flops) / flops_per_count)};
  arrived_ = tally.arrived;
  for (size_t i = 0; i < num_counters; ++i) {
    if (totals[i] != added_[i]) counters_[i]->add(totals[i] - added_[i]);
    added_[i] = totals[i];
  }
}

report::ProgressState RunProgress::state() const {
  report::ProgressState state = start_;
  if (replays_) state.turns_arrived = arrived_;
  state.turns_done += counters_[0]->value();
  state.turns_failed += counters_[1]->value();
  state.prompt_tokens += counters_[2]->value();
  state.output_tokens += counters_[3]->value();
  state.work += flops_per_count * static_cast<double>(counters_[4]->value());
  return state;
}

void RunProgress::finish(const Standing& left) {
  report::ProgressState last = state();
  last.turns_done = left.done;
  last.turns_failed = left.failed;
  // Answers that stopped early cost less than was set aside for them.
  if (left.unfinished() == 0) last.work = totals_.work;
  shown_->finish(last);
}

}  // namespace pecia::runtime
