// SPDX-License-Identifier: Apache-2.0
#include "lib/run/run_progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace pecia::run {
namespace {

constexpr double flops_per_count = 1e6;  // lets 64 bits suffice

report::ProgressOptions options_of(const job::Job& job) {
  report::ProgressOptions options = report::progress_options_of(STDERR_FILENO);
  if (job.report.progress == job::Progress::off) options.style = report::ProgressStyle::off;
  if (job.report.progress == job::Progress::lines) options.style = report::ProgressStyle::lines;
  if (job.report.progress == job::Progress::bar) options.style = report::ProgressStyle::bar;
  options.file = job.output / "progress.json";
  return options;
}

}  // namespace

RunProgress::RunProgress(comm::Communicator& world, const ReplicaPart& part,
                         const report::Recorder& recorder)
    : part_(part),
      recorder_(recorder),
      counters_(world.make_counters(num_counts + int64_t{num_phases} * part.replicas)) {}

void RunProgress::show(const job::Job& job, const batch::Inputs& inputs,
                       const io::ResultsFile& results, std::vector<report::StartRecord> earlier,
                       const report::StartRecord& own) {
  totals_ = {.requests = static_cast<int64_t>(inputs.requests().size()),
             .turns = inputs.num_turns(),
             .prompt_tokens = inputs.prompt_tokens() - inputs.shared_tokens(),
             .earlier = std::move(earlier),
             .own = own};
  replays_ = job.batch.arrivals == job::Arrivals::replay;
  const std::vector<io::TurnState> states = results.states();
  for (const batch::InputRequest* request : execute::open_requests(inputs, results))
    if (replays_)
      totals_.last_arrival_s =
          std::max(totals_.last_arrival_s, inputs.prompt(*request).arrival_s.value());
  for (const batch::InputRequest& request : inputs.requests()) {
    bool settled = true;
    const io::PromptRequest& prompt = inputs.prompt(request);
    for (size_t turn = 0; turn < prompt.turns.size(); ++turn) {
      const io::TurnState state = states.at(request.first_row + turn);
      const bool finished = state == io::TurnState::done || state == io::TurnState::failed;
      if (finished) start_.prompt_tokens += prompt.turns[turn].num_tokens();
      settled = settled && finished;
    }
    totals_.work += request.work;
    if (settled) start_.work += request.work;
  }
  const batch::TurnCounts now = batch::count_turns(results);
  start_.turns_done = now.done;
  start_.turns_failed = now.failed;
  shown_.emplace(totals_, start_, options_of(job), std::cerr);
}

void RunProgress::begin_pass(const schedule::Plan& plan, const execute::ReplicaTotals& totals) {
  // What is read from a save counts when it is there.
  const execute::NewTokens tokens =
      plan.restore.empty() ? execute::new_tokens(plan) : execute::NewTokens();
  pass_ = {.begin = std::chrono::steady_clock::now(),
           .before = told_of(totals),
           .prompt_tokens = tokens.prompt,
           .prefill_share = tokens.prompt > 0 ? tokens.prefill_share() : 0,
           .flops = recorder_.totals().flops};
  arrived_ = totals.arrived;
}

void RunProgress::poll() {
  if (is_time()) poll_now(pass_ ? told_within(*pass_) : told_);
}

void RunProgress::update(const execute::ReplicaTotals& totals) {
  pass_.reset();
  arrived_ = totals.arrived;
  if (is_time()) poll_now(told_of(totals));
}

void RunProgress::add(const execute::ReplicaTotals& totals) {
  pass_.reset();
  arrived_ = totals.arrived;
  tell(told_of(totals));
}

bool RunProgress::is_time() const {
  return std::chrono::steady_clock::now() >= next_look_;
}

/// Tells what is new and shows it. The next time is so late that this takes no more than a twentieth
/// of the time: over a slow network each counter may take milliseconds.
void RunProgress::poll_now(const Told& told) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds interval(100);
  constexpr int part = 20;
  const auto begin = Clock::now();
  tell(told);
  if (shown_) shown_->update(state());
  const auto end = Clock::now();
  next_look_ = end + std::max<Clock::duration>(interval, part * (end - begin));
}

RunProgress::Told RunProgress::told_of(const execute::ReplicaTotals& totals) {
  const auto flops = totals.prefill_flops + totals.decode_flops;
  return {{totals.done, totals.failed, totals.prompt_tokens, totals.output_tokens,
           static_cast<int64_t>(totals.tbt_s.size()), static_cast<int64_t>(flops / flops_per_count),
           totals.restored_tokens, static_cast<int64_t>(totals.restored_flops / flops_per_count)},
          {std::llround(1e9 * totals.prefill_s), std::llround(1e9 * totals.decode_s)}};
}

/// A layer counts once the next one has begun. Decode tokens and time count when the pass ends.
RunProgress::Told RunProgress::told_within(PassUnderWay& pass) const {
  // After the last layer the recorder is at no layer.
  pass.layers_done = std::max<int64_t>(pass.layers_done, recorder_.layer());
  Told told = pass.before;
  const std::chrono::duration<double, std::nano> elapsed =
      std::chrono::steady_clock::now() - pass.begin;
  const double flops = part_.ranks * (recorder_.totals().flops - pass.flops);
  told.counts[prompt_tokens] += pass.prompt_tokens * pass.layers_done / part_.layers;
  told.counts[work] += static_cast<int64_t>(flops / flops_per_count);
  if (pass.layers_done > 0)
    told.phases[prefill_ns] += std::llround(pass.prefill_share * elapsed.count());
  return told;
}

/// Adds the changes since the last call to the shared counters.
void RunProgress::tell(const Told& told) {
  for (int i = 0; i < num_counts; ++i)
    if (const int64_t more = told.counts[i] - told_.counts[i]; more != 0) counters_->add(i, more);
  for (int i = 0; i < num_phases; ++i)
    if (const int64_t more = told.phases[i] - told_.phases[i]; more != 0)
      counters_->add(num_counts + part_.replica * num_phases + i, more);
  told_ = told;
}

/// Replicas run side by side, so the run takes the time of the slowest one, as in its report.
int64_t RunProgress::longest(Phase phase) const {
  int64_t ns = 0;
  for (int replica = 0; replica < part_.replicas; ++replica)
    ns = std::max(ns, counters_->value(num_counts + replica * num_phases + phase));
  return ns;
}

report::ProgressState RunProgress::state() const {
  report::ProgressState state = start_;
  if (replays_) state.turns_arrived = arrived_;
  state.turns_done += counters_->value(done);
  state.turns_failed += counters_->value(failed);
  state.prompt_tokens += counters_->value(prompt_tokens);
  state.output_tokens += counters_->value(output_tokens);
  state.decode_tokens += counters_->value(decode_tokens);
  state.work += flops_per_count * static_cast<double>(counters_->value(work));
  state.restored_tokens += counters_->value(restored_tokens);
  state.restored_work += flops_per_count * static_cast<double>(counters_->value(restored_work));
  state.prefill_s = 1e-9 * static_cast<double>(longest(prefill_ns));
  state.decode_s = 1e-9 * static_cast<double>(longest(decode_ns));
  return state;
}

void RunProgress::finish(const batch::TurnCounts& left) {
  report::ProgressState last = state();
  last.turns_done = left.done;
  last.turns_failed = left.failed;
  // Answers that stopped early cost less than expected, so the work may still lack some.
  if (left.unfinished() == 0) last.work = totals_.work - last.restored_work;
  shown_->finish(last);
}

}  // namespace pecia::run
