// SPDX-License-Identifier: Apache-2.0
/// A replica's loop from prompt shard to results: what it counts, and what it notes for the trace.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "lib/engine/execute/arrivals.hpp"
#include "lib/engine/execute/replica_loop.hpp"
#include "lib/engine/execute/team_loop.hpp"
#include "lib/model/weights/device_weights.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/separate_device.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

/// Time that passes only while a rank sleeps: passes take none.
struct FakeClock {
  double now = 0, slept = 0;

  execute::RunClock clock() {
    return {[this] { return now; },
            [this](double seconds) {
              slept += seconds;
              now += seconds;
            }};
  }
};

/// Prompts of 5, 40 and 120 tokens, four new tokens each, chunked in passes of 32.
class ReplicaLoop : public testing::Test, private execute::RunObserver {
 protected:
  ReplicaLoop() {
    limits_.ring_size = world_->size();
    limits_.kv_tokens = 400;
    limits_.max_sequences = 8;
    limits_.max_batch_tokens = 32;
    limits_.max_positions = 1000;
    limits_.vocab = config_.vocab;
    limits_.policy = job::Policy::chunked;
    limits_.ring.reset();
    limits_.ring_shape = {8, 4, 4};
    limits_.ring_rates = {1e15, 1e6, 1e6};
  }

  /// `arrivals`: of the requests, if they are replayed.
  execute::ReplicaTotals run(const std::vector<double>& arrivals = {},
                             const execute::RunClock& clock = execute::steady_run_clock()) {
    const model::Weights weights(config_, io::Checkpoint(model_), {});
    const auto device = on_gpu_ ? make_separate_device({.info = {"separate", 90, 1, "", ""},
                                                        .before_work = [this] { events_ += 'w'; }})
                                : device::make_host_device(1);
    const auto stream = device->make_stream();
    const auto backend = on_gpu_ ? make_separate_backend() : kernels::make_cpu_backend();
    std::optional<model::DeviceWeights> there;
    if (on_gpu_) there.emplace(weights, *device, *stream, *backend);
    execute::Replica replica(*world_, config_,
                             there ? *there : static_cast<const model::WeightViews&>(weights),
                             {*device, *stream, *backend, recorder_},
                             {.kv_tokens = limits_.kv_tokens, .copies_keys = limits_.apart()});
    events_.clear();
    const auto loop = [&](execute::PlanSource* plans) {
      if (limits_.elastic)
        return execute::run_teams(*world_, replica, recorder_, plans, stop_requested_, {}, clock);
      return execute::run_replica(*world_, replica, recorder_, plans, stop_requested_, clock);
    };
    if (!planning()) return loop(nullptr);

    ShardContent content;
    for (const size_t length : {5, 40, 120})
      content.requests.push_back({std::to_string(length), {{std::vector<int32_t>(length, 7)}}});
    content.arrival_s = arrivals;
    content.max_new_tokens = max_new_tokens_;
    write_shard(folder_ / "a.h5", content);
    job::Job job;
    if (!arrivals.empty()) job.batch.arrivals = job::Arrivals::replay;
    job.model.path = model_;
    job.input = {folder_ / "a.h5"};
    job.generation.max_new_tokens = 4;
    const batch::Inputs inputs(job, config_);
    io::ResultsFile::create(folder_ / "results.h5", inputs.layout());
    io::ResultsFile results(folder_ / "results.h5");
    const auto counter = comm::make_null_communicator()->make_counter();
    const auto claims = comm::make_null_communicator()->make_counters(3);
    execute::ListSource list(inputs, results, job::Order::fcfs, *counter);
    std::optional<execute::ArrivalSource> replay;
    if (!arrivals.empty()) replay.emplace(inputs, results, job::Order::fcfs, *claims);
    schedule::Scheduler scheduler(limits_);
    execute::PlanSource plans{scheduler, replay ? static_cast<execute::Source&>(*replay) : list,
                              results, *this};
    auto totals = loop(&plans);
    for (int64_t row = 0; row < 3; ++row) {
      states_.push_back(results.state(row));
      if (states_.back() == io::TurnState::done) results_.push_back(results.read(row));
    }
    return totals;
  }
  bool planning() const { return world_->rank() == 0; }

  std::string mode(const std::string& ring) override {
    events_ += 'r';  // a turn is recorded
    return ring;
  }
  bool stopping(bool stop_requested) override { return stop_requested; }
  void planned(const schedule::Plan&, std::optional<double>) override {}
  void begins(const schedule::Plan&, const execute::ReplicaTotals&) override { events_ += 'b'; }
  void ended(const execute::ReplicaTotals&) override {}

  double phase_seconds(const char* name) const {
    for (const report::Stage& stage : recorder_.stages())
      if (std::strcmp(stage.name, name) == 0 && stage.kind == report::Kind::phase)
        return stage.seconds;
    return 0;
  }

  const std::filesystem::path model_ = std::filesystem::path(PECIA_GOLDENS) / "llama-gqa-fp32";
  const model::ModelConfig config_ = model::read_config(model_);
  TempFolder folder_;
  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  report::Recorder recorder_{report::TraceDetail::summary};
  schedule::SchedulerLimits limits_;
  std::vector<int32_t> max_new_tokens_;  ///< by request; empty: four each
  bool on_gpu_ = false;                  ///< whose work is done when the host waits for it
  std::string events_;  ///< b: a pass begins; w: a piece of work of the GPU; r: a turn is recorded
  FakeClock time_;
  int asked_ = 0;
  std::function<bool()> stop_requested_ = [] { return false; };
  std::vector<io::TurnState> states_;  ///< where it was planned
  std::vector<io::TurnResult> results_;
};

/// Events of one letter only, where others come between them.
std::vector<std::string> passes_of(const std::string& events) {
  std::vector<std::string> passes;
  for (const char event : events) {
    if (event == 'b' || passes.empty()) passes.emplace_back();
    if (passes.back().empty() || passes.back().back() != event || event == 'b')
      passes.back() += event;
  }
  return passes;
}

TEST_F(ReplicaLoop, WritesTurnsWhileAGpuComputesTheNextPass) {
  if (world_->size() > 1) GTEST_SKIP() << "transfers would need a double, too";
  on_gpu_ = true;
  limits_.ring = parallel::AttentionExchange::pass_kv;
  EXPECT_EQ(run().done, 3);
  const std::vector<std::string> passes = passes_of(events_);
  ASSERT_GE(passes.size(), 4u);
  EXPECT_EQ(passes.back(), "bwr") << "nothing comes after the last pass";
  int beside = 0;
  for (size_t i = 0; i + 1 < passes.size(); ++i) {
    EXPECT_TRUE(passes[i] == "bw" || passes[i] == "brw") << passes[i];  // recorded before any work
    beside += passes[i] == "brw";
  }
  EXPECT_EQ(beside, 2);
}

TEST_F(ReplicaLoop, WritesTurnsAtOnceWhereTheHostComputes) {
  if (world_->size() > 1) GTEST_SKIP() << "it is counted once";
  run();
  const std::vector<std::string> passes = passes_of(events_);
  EXPECT_EQ(std::ranges::count(passes, "br"), 3);
}

TEST_F(ReplicaLoop, CountsTokensAndSharesMixedPasses) {
  const execute::ReplicaTotals totals = run();
  EXPECT_GT(phase_seconds("prefill"), 0) << "the first pass";
  EXPECT_GT(phase_seconds("mixed"), 0);
  EXPECT_GT(phase_seconds("decode"), 0) << "the last passes";
  if (!planning()) return;
  EXPECT_EQ(totals.done, 3);
  EXPECT_EQ(totals.prompt_tokens, 5 + 40 + 120);
  EXPECT_EQ(totals.output_tokens, 3 * 4);
  EXPECT_EQ(totals.ttft_s.size(), 3u);
  EXPECT_EQ(totals.tbt_s.size(), 3u * 3);
  EXPECT_GT(totals.prefill_s, phase_seconds("prefill"));
  EXPECT_GT(totals.decode_s, phase_seconds("decode"));
  EXPECT_GE(totals.prefill_s + totals.decode_s,
            phase_seconds("prefill") + phase_seconds("mixed") + phase_seconds("decode"));
  const double flops = recorder_.totals().flops * world_->size();
  EXPECT_GT(totals.prefill_flops, totals.decode_flops);
  EXPECT_GT(totals.decode_flops, 0);
  EXPECT_NEAR(totals.prefill_flops + totals.decode_flops, flops, 1e-9 * flops);
}

TEST_F(ReplicaLoop, NotesWhyTheRingWasChosenWhereItIsPlanned) {
  run();
  const bool chosen = planning() && world_->size() > 1;
  EXPECT_EQ(!recorder_.notes().empty(), chosen);
  if (!chosen) return;
  bool seen[2] = {};
  for (const report::Note& note : recorder_.notes()) {
    EXPECT_STREQ(note.name, "ring_rule");
    EXPECT_GE(note.pass, 0);
    const std::map<std::string, double> values(note.values.begin(), note.values.end());
    EXPECT_EQ(values.at("ranks"), world_->size());
    EXPECT_EQ(values.at("flops"), 1e15);
    EXPECT_EQ(values.at("bandwidth"), 1e6);
    EXPECT_EQ(values.at("miss_rate"),
              values.at("new_tokens") / (values.at("new_tokens") + values.at("cached_tokens")));
    const bool keys_travel = values.at("miss_rate") >= values.at("miss_rate_limit");
    EXPECT_STREQ(note.outcome, keys_travel ? "pass_kv" : "pass_q");
    seen[keys_travel] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1]);
}

TEST_F(ReplicaLoop, SleepsUntilRequestsArrive) {
  run();
  const auto ignored = std::exchange(results_, {});
  std::filesystem::remove(folder_ / "results.h5");
  const execute::ReplicaTotals totals = run({5, 0.25, 5}, time_.clock());
  EXPECT_NEAR(time_.now, 5, 1e-9) << "every rank sleeps, and no longer than to the last arrival";
  if (!planning()) return;
  EXPECT_EQ(time_.now, time_.slept);
  EXPECT_EQ(totals.done, 3);
  EXPECT_EQ(totals.arrived, 3);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(results_[row].tokens, ignored[row].tokens);
    EXPECT_NEAR(results_[row].queue_s, 0, 1e-6) << "passes take no time here";
    EXPECT_NEAR(results_[row].ttft_s, 0, 1e-6);
  }
}

TEST_F(ReplicaLoop, StopsWhileItSleepsWhenAnyRankIsTold) {
  const bool last = world_->rank() + 1 == world_->size();
  stop_requested_ = [&] { return last && time_.now >= 2; };
  const execute::ReplicaTotals totals = run({0, 1, 1000}, time_.clock());
  EXPECT_GE(time_.now, 2);
  EXPECT_LT(time_.now, 2.5) << "a wait is cut into pieces of a tenth of a second";
  if (!planning()) return;
  EXPECT_EQ(totals.arrived, 2);
  EXPECT_EQ(states_, (std::vector{io::TurnState::done, io::TurnState::done, io::TurnState::open}));
}

/// LoongServe's steps deal the prompts; times of passes are not measured on this clock.
TEST_F(ReplicaLoop, OfTeamsThatAreDealtPromptsAnswersTheSame) {
  limits_.policy = job::Policy::prefill_first;
  run();
  const auto together = std::exchange(results_, {});
  if (world_->size() == 1) return;
  const schedule::RateFit fit(schedule::PassRates{1e-5, 1e-3, 1e-9});
  limits_.elastic = true;
  limits_.scheduler = job::TeamScheduler::loongserve;
  limits_.kv_tokens = 100;  // the long prompt does not fit into one instance
  limits_.team_times.emplace(schedule::PassTimes{fit, fit},
                             schedule::TeamCosts{1e-6, 1e12, 1, 1, 2}, world_->size());
  for (const auto objective : {job::Objective::throughput, job::Objective::ttft}) {
    limits_.objective = objective;
    results_.clear();
    std::filesystem::remove(folder_ / "results.h5");
    const execute::ReplicaTotals totals = run({}, time_.clock());
    if (!planning()) continue;
    ASSERT_EQ(results_.size(), 3u);
    for (size_t row = 0; row < 3; ++row) EXPECT_EQ(results_[row].tokens, together[row].tokens);
    EXPECT_EQ(totals.done, 3);
    EXPECT_EQ(totals.prompt_tokens, 5 + 40 + 120);
  }
}

TEST_F(ReplicaLoop, OfTeamsAnswersAndCountsTheSame) {
  limits_.policy = job::Policy::prefill_first;
  run();
  const auto together = std::exchange(results_, {});
  std::filesystem::remove(folder_ / "results.h5");
  limits_.elastic = true;
  limits_.kv_tokens = 100;  // the long prompt does not fit into one instance
  const execute::ReplicaTotals totals = run();
  if (!planning()) return;
  if (world_->size() == 1) return;  // there it does not run
  ASSERT_EQ(results_.size(), 3u);
  for (size_t row = 0; row < 3; ++row) EXPECT_EQ(results_[row].tokens, together[row].tokens);
  EXPECT_EQ(totals.done, 3);
  EXPECT_EQ(totals.prompt_tokens, 5 + 40 + 120);
  EXPECT_EQ(totals.output_tokens, 3 * 4);
  EXPECT_EQ(totals.tbt_s.size(), 3u * 3);
  EXPECT_GT(totals.prefill_flops, totals.decode_flops);
  ASSERT_GE(totals.elastic.by_degree.size(), 2u);
  int64_t read = 0;
  for (const execute::TeamTotals& degree : totals.elastic.by_degree) read += degree.prefill_tokens;
  EXPECT_EQ(read, totals.prompt_tokens);
  EXPECT_GT(totals.elastic.by_degree[0].prefill_tokens, 0);
}

/// Where one instance has two long answers, and the other one an answer of one token, the team grows.
/// The instance that is ready first begins the third request, so a round may come out otherwise.
TEST_F(ReplicaLoop, OfPartsThatReadAndAnswerAnswersTheSame) {
  limits_.policy = job::Policy::prefill_first;
  max_new_tokens_ = {1, 24, 9};
  run();
  const auto together = std::exchange(results_, {});
  limits_.elastic = true;
  for (limits_.answering = 1; limits_.answering < world_->size(); ++limits_.answering)
    for (const bool fixed : {false, true}) {
      limits_.fixed_parts = fixed;
      results_.clear();
      std::filesystem::remove(folder_ / "results.h5");
      const execute::ReplicaTotals totals = run();
      if (!planning()) continue;
      ASSERT_EQ(results_.size(), 3u);
      for (size_t row = 0; row < 3; ++row) {
        EXPECT_EQ(results_[row].tokens, together[row].tokens);
        EXPECT_EQ(results_[row].mode.substr(0, 6), "apart:");
      }
      EXPECT_EQ(totals.done, 3);
      EXPECT_EQ(totals.prompt_tokens, 5 + 40 + 120);
    }
}

TEST_F(ReplicaLoop, OfTeamsThatGrowAnswersTheSame) {
  limits_.policy = job::Policy::prefill_first;
  max_new_tokens_ = {24, 1, 24};
  run();
  const auto together = std::exchange(results_, {});
  limits_.elastic = true;
  // Passes take no time on this clock, so these are not fitted to any.
  const schedule::RateFit rows_cost(schedule::PassRates{1e-5, 1e-3, 1e-9});
  limits_.team_times.emplace(schedule::PassTimes{rows_cost, rows_cost},
                             schedule::TeamCosts{1e-6, 1e12, 1, 1, 2}, world_->size());
  constexpr int most_rounds = 50;
  int64_t grown = 0;
  for (int round = 0; round < most_rounds && grown == 0; ++round) {
    results_.clear();
    std::filesystem::remove(folder_ / "results.h5");
    grown = run({}, time_.clock()).elastic.scale_ups;
    MPI_Bcast(&grown, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (planning()) {
      ASSERT_EQ(results_.size(), 3u);
      for (size_t row = 0; row < 3; ++row) EXPECT_EQ(results_[row].tokens, together[row].tokens);
    }
    if (world_->size() != 2) return;
  }
  EXPECT_EQ(grown, 1);
}

TEST_F(ReplicaLoop, OfTeamsStopsWhenAnyRankIsTold) {
  limits_.elastic = true;
  const bool last = world_->rank() + 1 == world_->size();
  if (world_->size() == 1) return;
  // A rank that waits for a plan tells rank 0 by itself; the clock does not move.
  stop_requested_ = [&] { return last && ++asked_ > 20; };
  run({0, 0, 1000}, time_.clock());
  if (!planning()) return;
  EXPECT_EQ(states_[2], io::TurnState::open);
}

}  // namespace
}  // namespace pecia::test
