// SPDX-License-Identifier: Apache-2.0
#include "lib/run/planning.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "lib/base/core/counted.hpp"
#include "lib/base/core/escaped.hpp"
#include "lib/base/core/random.hpp"
#include "lib/base/report/format.hpp"
#include "lib/engine/execute/arrivals.hpp"
#include "lib/engine/execute/estimated_times.hpp"
#include "lib/engine/schedule/active_sequence.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/scheduler_limits.hpp"
#include "lib/work/batch/identity.hpp"
#include "lib/work/batch/journals.hpp"

namespace pecia::run {
namespace {

/// The counters by which replicas take arrived requests; null unless arrivals are replayed.
std::unique_ptr<comm::SharedCounters> make_claims(const Setup& setup, const batch::Inputs* inputs) {
  if (setup.job.batch.arrivals == job::Arrivals::ignore) return nullptr;
  const auto mine = inputs != nullptr ? static_cast<int64_t>(inputs->requests().size()) : 0;
  return setup.world().make_counters(setup.world().all_reduce_max(mine));
}

/// Leaves out requests that the KV slots cannot hold, so that they do not count in estimates of the
/// time left. Call it after the sources have their order, which is the same on all replicas.
void leave_out_too_large(const Setup& setup, const io::ResultsFile& results,
                         const schedule::SchedulerLimits& limits, batch::Inputs& inputs) {
  std::vector<int64_t> rows;
  for (const batch::InputRequest* request : execute::open_requests(inputs, results))
    if (resources::most_slots(setup.job, inputs, *request, setup.resources) > limits.most_slots())
      for (const batch::Finished& failed :
           execute::refused_at_once(execute::load_open(inputs, results, *request), limits))
        rows.push_back(failed.row);
  inputs.leave_out(rows);
}

/// "a prefill pass of 512 tokens, about 3 s".
std::string to_text(const schedule::Plan& plan, std::optional<double> seconds) {
  int64_t tokens = 0;
  for (const schedule::PlanItem& item : plan.items) tokens += item.rows.count;
  return fmt::format("a {} pass of {}{}", execute::phase_name(plan), counted(tokens, "token"),
                     seconds ? ", about " + report::format_duration(*seconds) : "");
}

/// Names open requests that no start of this length can answer, as far as the rates are known.
void name_too_long(const batch::Inputs& inputs, const io::ResultsFile& results,
                   const schedule::Scheduler& scheduler, double start_s, spdlog::logger& log) {
  const batch::InputRequest* longest = nullptr;
  double longest_s = start_s;
  int64_t count = 0;
  for (const batch::InputRequest* request : execute::open_requests(inputs, results)) {
    if (request->work == 0) continue;  // it cannot run
    const auto [prompt, answer] = execute::first_lengths(inputs, *request);
    const double seconds = scheduler.seconds_alone(prompt, answer);
    count += seconds > start_s;
    if (seconds > longest_s) longest = request, longest_s = seconds;
  }
  if (longest == nullptr) return;
  log.warn("request '{}' needs about {}, a start has {}{}: {}", escaped(inputs.prompt(*longest).id),
           report::format_duration(longest_s), report::format_duration(start_s),
           count > 1 ? fmt::format(" ({} requests need more than that)", count) : "",
           scheduler.keeps_kv()
               ? "what a start reads of it is kept for the next one (kv.save)"
               : "it comes last; raise limits.wall_time, use more ranks, or let kv.save be auto");
}

/// Seconds from its begin that a start may be assumed to have where no limit is stated; absent at
/// the first start. It is a share of the time that earlier starts had, since these ended before
/// their work did. Collective over `world`; `earlier` is read on the root rank.
std::optional<double> assumed_seconds(const std::vector<report::StartRecord>& earlier,
                                      comm::Communicator& world) {
  constexpr size_t telling = 3;
  constexpr double safe_share = 0.9;
  double shortest = std::numeric_limits<double>::infinity();
  for (size_t i = earlier.size() - std::min(telling, earlier.size()); i < earlier.size(); ++i)
    shortest = std::min(shortest, safe_share * earlier[i].seconds);
  const auto ms = world.all_reduce_max(earlier.empty() ? 0 : std::llround(1e3 * shortest));
  if (ms == 0) return {};
  return 1e-3 * static_cast<double>(ms);
}

execute::KvSaves::Settings kv_settings(const Setup& setup, const io::ResultsFile& results,
                                       const batch::Inputs& inputs) {
  constexpr double share_of_grace = 0.8;  // the rest is for the report
  return {.folder = setup.job.output / "kv",
          .identity = batch::kv_identity(results.layout().identity, setup.job),
          .bytes = execute::kv_bytes(setup.config, setup.resources),
          .seconds = share_of_grace * setup.job.limits.grace_s,
          .warn = [log = setup.log](const std::string& text) { log->warn(text); },
          .flops = [&inputs](double tokens) { return inputs.flops_of(tokens); }};
}

/// Lengths of the last answers that earlier starts have finished.
std::vector<schedule::EarlierAnswer> earlier_answers(const io::ResultsFile& results) {
  constexpr size_t most = 1000;
  std::vector<schedule::EarlierAnswer> found;
  const std::vector<io::TurnState> states = results.states();
  for (int64_t row = std::ssize(states) - 1; row >= 0 && found.size() < most; --row) {
    const int64_t slots = results.layout().turns[row].slots;
    if (states[row] == io::TurnState::done && slots > 0)
      found.push_back({static_cast<int32_t>(slots), results.output_tokens(row)});
  }
  return found;
}

/// For tests: a seed by which sequences yield although they need not.
std::optional<uint64_t> forced_yields() {
  const char* const seed = std::getenv("PECIA_FORCE_YIELDS");
  if (seed == nullptr) return {};
  return std::strtoull(seed, nullptr, 10);
}

/// Spoils drafts by a seed, for tests: makes one up, or changes a token of it, or leaves it as it is.
schedule::DraftLimits::Change spoiling(uint64_t seed, int64_t vocab) {
  return [seed, vocab](const schedule::ActiveSequence& sequence, int64_t most,
                       std::vector<int32_t>& draft) {
    const uint64_t key = mix(mix(seed, static_cast<uint64_t>(sequence.id)),
                             static_cast<uint64_t>(sequence.text->size()));
    uint64_t drawn = 0;
    const auto below = [&](int64_t end) {
      return static_cast<int64_t>(uniform(key, drawn++) * static_cast<double>(end));
    };
    const auto any_token = [&] { return static_cast<int32_t>(below(vocab)); };
    if (draft.empty() || below(4) == 0) {
      draft.resize(1 + below(most));
      std::ranges::generate(draft, any_token);
    } else if (below(2) == 0) {
      draft[below(std::ssize(draft))] = any_token();
    }
  };
}

schedule::DraftLimits draft_limits(const job::Job& job, const model::ModelConfig& config) {
  schedule::DraftLimits limits;
  if (const auto& drafts = job.generation.drafts)
    limits = {drafts->value_or(schedule::DraftLimits::most_by_price), !drafts->has_value()};
  if (const char* const seed = std::getenv("PECIA_SPOIL_DRAFTS"))
    limits.change = spoiling(std::strtoull(seed, nullptr, 10), config.vocab);
  return limits;
}

std::optional<Stop::Clock::time_point> drain_at(const RunBegin& begin,
                                                std::optional<double> drain_s) {
  if (!drain_s) return {};
  return begin.at +
         std::chrono::duration_cast<Stop::Clock::duration>(std::chrono::duration<double>(*drain_s));
}

ReplicaPart part_of(const Setup& setup) {
  return {.replicas = setup.resources.dp,
          .replica = setup.ranks.dp,
          .ranks = setup.ranks.replica->size(),
          .layers = setup.stage.layers};
}

/// Waits until all replicas have finished, however long. Their work may be uneven, so no limit for
/// a collective applies here. A rank that is asked to stop meanwhile tells the others. `longest`:
/// between two looks.
void wait_for_replicas(comm::SharedCounter& finished, int replicas, Stop& stop,
                       std::chrono::microseconds longest, const std::function<void()>& poll) {
  using std::chrono::microseconds;
  for (microseconds pause(100); finished.value() < replicas; pause = std::min(2 * pause, longest)) {
    stop.agreed(stop.reason() != StopReason::none);
    poll();
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

Planning::Planning(const PlanningInputs& from, const RunBegin& begin, const DrainSignals& signals,
                   execute::Replica& replica)
    : setup_(from.setup),
      taken_(setup_.world().make_counter()),
      stopped_(setup_.world().make_counter()),
      finished_(setup_.world().make_counter()),
      claims_(make_claims(setup_, from.inputs.get())),
      stop_(signals, drain_at(begin, setup_.drain_s), *stopped_),
      progress_(setup_.world(), part_of(setup_), replica.compute().recorder) {
  replica.while_computing([this] { poll(); });
  const auto end_s = setup_.drain_s ? setup_.drain_s
                                    : assumed_seconds(from.results.earlier_starts, setup_.world());
  comm::together(setup_.world(), [&] {
    if (setup_.planning()) plan(from, begin, end_s);
  });
}

void Planning::plan(const PlanningInputs& from, const RunBegin& begin,
                    std::optional<double> end_s) {
  const job::Job& job = setup_.job;
  const bool is_root = setup_.is_root(), stated = setup_.drain_s.has_value();
  batch::Inputs& inputs = *from.inputs.inputs;
  if (!from.results.file) from.results.file.emplace(job.output / "results.h5");
  io::ResultsFile& results = *from.results.file;
  if (claims_)
    source_ = std::make_unique<execute::ArrivalSource>(
        inputs, results,
        // The scheduler orders what has arrived.
        setup_.resources.objective == job::Objective::ttft ? job::Order::fcfs : job.batch.order,
        *claims_);
  else
    source_ = std::make_unique<execute::ListSource>(inputs, results, job.batch.order, *taken_);

  const double start_s =
      end_s ? *end_s - begin.seconds_since() : std::numeric_limits<double>::infinity();
  const schedule::PassTimes times =
      kept_times(job.output, from.start,
                 execute::estimated_times(setup_.config, setup_.resources, from.weights.held(),
                                          resources::code_use(job, setup_.config, setup_.resources),
                                          from.product_flops));
  schedule::SchedulerLimits limits = settle::scheduler_limits(
      job, setup_.config, setup_.resources, from.measured,
      schedule::TimeLimit{
          .end_s = start_s, .times = times, .keeps_kv = keeps_kv(setup_), .assumed = !stated},
      from.inputs.detokenizer);
  limits.grammars = from.inputs.grammars;
  limits.earlier_answers = earlier_answers(results);
  limits.forced_yields = forced_yields();
  limits.drafts = draft_limits(job, setup_.config);
  limits.parking_tokens = from.parking.tokens;
  limits.parking_s = from.parking.token_s;
  if (limits.team_times) begin_as_kept(job.output, from.start, *limits.team_times);
  scheduler_.emplace(limits);
  if (keeps_kv(setup_)) saves_.emplace(kv_settings(setup_, results, inputs), results);
  if (setup_.resources.dp > 1)
    journal_.emplace(batch::journal_folder(job.output), setup_.ranks.dp, results);
  if (is_root) {
    leave_out_too_large(setup_, results, limits, inputs);
    progress_.show(job, inputs, results, from.results.earlier_starts,
                   {.began_unix_s = begin.unix_s,
                    .seconds = begin.seconds_since(),
                    .cores = setup_.resources.threads.cores_of_job,
                    .gpus = num_gpus(from.facts),
                    .hosts = num_hosts(from.facts)});
  }
  if (is_root && end_s && !stated)
    setup_.log->info(
        "no wall time is stated, but earlier starts ended after {} or more: what can be "
        "answered by then comes first",
        report::format_duration(*end_s));
  if (is_root && stated && start_s > 0)
    name_too_long(inputs, results, *scheduler_, start_s, *setup_.log);

  plans_.emplace(execute::PlanSource{.scheduler = *scheduler_,
                                     .source = *source_,
                                     .results = results,
                                     .observer = *this,
                                     .replica = setup_.ranks.dp,
                                     .journal = journal_ ? &*journal_ : nullptr,
                                     .saves = saves_ ? &*saves_ : nullptr});
  if (is_root && journal_) {
    batch::make_journal_folder(job.output);
    gathering_.emplace(job.output);
  }
}

std::string Planning::mode(const std::string& ring) {
  return resources::mode_name(setup_.resources, ring);
}

void Planning::planned(const schedule::Plan& plan, std::optional<double> seconds) {
  if (setup_.is_root()) DrainSignals::stops_after(to_text(plan, seconds));
}

void Planning::begins(const schedule::Plan& plan, const execute::ReplicaTotals& totals) {
  progress_.begin_pass(plan, totals);
}

void Planning::ended(const execute::ReplicaTotals& totals) {
  if (gathering_) gathering_->check();
  progress_.update(totals);
}

void Planning::poll() {
  if (setup_.resources.dp > 1 && holds_counters()) setup_.world().progress();
  if (setup_.planning()) progress_.poll();
}

void Planning::finish_with(const execute::ReplicaTotals& totals) {
  if (setup_.planning()) {
    progress_.add(totals);
    finished_->next();
  }
  constexpr std::chrono::microseconds often(100), seldom(200'000);
  wait_for_replicas(*finished_, setup_.resources.dp, stop_, holds_counters() ? often : seldom,
                    [this] {
                      if (gathering_) gathering_->check();
                      poll();
                    });
  if (gathering_) gathering_->finish();
  if (setup_.is_root()) plans_->results.require_in_place();
}

StopReason Planning::agreed_reason() const {
  const bool left_for_later =
      setup_.planning() && (scheduler_->left_for_later() || source_->passed_over() > 0);
  const auto mine =
      std::max(stop_.reason(), left_for_later ? StopReason::wall_time : StopReason::none);
  return static_cast<StopReason>(setup_.world().all_reduce_max(static_cast<int64_t>(mine)));
}

}  // namespace pecia::run
