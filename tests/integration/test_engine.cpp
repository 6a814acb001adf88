/// A replica's loop from prompt shard to results: what it counts, and what it notes for the trace.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>

#include "lib/comm/mpi_communicator.hpp"
#include "lib/runtime/engine.hpp"
#include "tests/report/temp_folder.hpp"
#include "tests/support/shards.hpp"

namespace pecia::test {
namespace {

/// Prompts of 5, 40 and 120 tokens, four new tokens each, chunked in passes of 32.
class Engine : public testing::Test {
 protected:
  Engine() {
    limits_.ring_size = world_->size();
    limits_.kv_tokens = 400;
    limits_.max_sequences = 8;
    limits_.max_batch_tokens = 32;
    limits_.max_positions = 1000;
    limits_.vocab = config_.vocab;
    limits_.policy = runtime::Policy::chunked;
    limits_.ring.reset();
    limits_.ring_shape = {8, 4, 4};
    limits_.ring_rates = {1e15, 1e6};
  }

  runtime::Tally run() {
    const model::Weights weights(config_, io::Checkpoint(model_), {});
    const auto backend = kernels::make_cpu_backend();
    device::Stream stream(1);
    runtime::Worker worker(*world_, config_, weights, *backend, stream, recorder_,
                           {.kv_tokens = limits_.kv_tokens});
    if (!planning())
      return runtime::run_replica(*world_, worker, recorder_, nullptr, [] { return false; });

    ShardContent content;
    for (const size_t length : {5, 40, 120})
      content.requests.push_back({std::to_string(length), {{std::vector<int32_t>(length, 7)}}});
    write_shard(folder_ / "a.h5", content);
    runtime::Job job;
    job.model.path = model_;
    job.input = {folder_ / "a.h5"};
    job.generation.max_new_tokens = 4;
    const runtime::Inputs inputs(job, config_);
    io::ResultsFile::create(folder_ / "results.h5", inputs.layout());
    io::ResultsFile results(folder_ / "results.h5");
    const auto counter = comm::make_null_communicator()->make_counter();
    runtime::Source source(inputs, results, runtime::Order::fcfs, *counter);
    runtime::Scheduler scheduler(limits_);
    runtime::Planner planner{scheduler,
                             source,
                             results,
                             [](const std::string& ring) { return ring; },
                             0,
                             [](bool) { return false; },
                             [](const runtime::Tally&) {}};
    return runtime::run_replica(*world_, worker, recorder_, &planner, [] { return false; });
  }
  bool planning() const { return world_->rank() == 0; }
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
  runtime::SchedulerLimits limits_;
};

TEST_F(Engine, CountsTokensAndSharesMixedPasses) {
  const runtime::Tally tally = run();
  EXPECT_GT(phase_seconds("prefill"), 0) << "the first pass";
  EXPECT_GT(phase_seconds("mixed"), 0);
  EXPECT_GT(phase_seconds("decode"), 0) << "the last passes";
  if (!planning()) return;
  EXPECT_EQ(tally.done, 3);
  EXPECT_EQ(tally.prompt_tokens, 5 + 40 + 120);
  EXPECT_EQ(tally.output_tokens, 3 * 4);
  EXPECT_EQ(tally.ttft_s.size(), 3u);
  EXPECT_EQ(tally.tbt_s.size(), 3u * 3);
  EXPECT_GT(tally.prefill_s, phase_seconds("prefill"));
  EXPECT_GT(tally.decode_s, phase_seconds("decode"));
  EXPECT_GE(tally.prefill_s + tally.decode_s,
            phase_seconds("prefill") + phase_seconds("mixed") + phase_seconds("decode"));
  const double flops = recorder_.totals().flops * world_->size();
  EXPECT_GT(tally.prefill_flops, tally.decode_flops);
  EXPECT_GT(tally.decode_flops, 0);
  EXPECT_NEAR(tally.prefill_flops + tally.decode_flops, flops, 1e-9 * flops);
}

TEST_F(Engine, NotesWhyTheRingWasChosenWhereItIsPlanned) {
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

}  // namespace
}  // namespace pecia::test
