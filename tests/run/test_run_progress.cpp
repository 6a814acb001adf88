// SPDX-License-Identifier: Apache-2.0
/// Progress within passes: what is read counts layer by layer, and the end agrees with the totals.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/run/run_progress.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::run {
namespace {

using nlohmann::json;

/// Two requests of 100 tokens each, a model of four layers, and what progress.json says.
class RunProgressTest : public testing::Test {
 protected:
  RunProgressTest() {
    test::ShardContent content;
    for (const char* id : {"a", "b"})
      content.requests.push_back({id, {{std::vector<int32_t>(100, 1)}}});
    test::write_shard(folder_ / "a.h5", content);
    job_.model.path = folder_.path();
    job_.input = {folder_ / "a.h5"};
    job_.output = folder_.path();
    job_.report.progress = job::Progress::off;  // the file is written all the same
    config_.vocab = 100, config_.max_positions = 1000;
    config_.hidden = 8, config_.ffn = 8, config_.layers = 4;
    config_.num_heads = config_.num_kv_heads = 1, config_.head_dim = 8;
    inputs_.emplace(job_, config_);
    io::ResultsFile::create(folder_ / "results.h5", inputs_->layout());
    results_.emplace(folder_ / "results.h5");
    progress_.emplace(*world_, ReplicaPart{.layers = 4}, recorder_);
  }
  void show(std::vector<report::StartRecord> earlier = {}) {
    progress_->show(job_, *inputs_, *results_, std::move(earlier), {.seconds = 1, .cores = 2});
  }
  static schedule::Plan prompts() {
    schedule::Plan plan;
    for (const int64_t sequence : {0, 1}) {
      schedule::PlanItem item;
      item.rows = {sequence, 0, 100};
      item.sampled_index = 0;
      plan.items.push_back(std::move(item));
    }
    return plan;
  }
  /// After the time for which calls do nothing, and that of the file.
  json looked() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    progress_->poll();
    return file();
  }
  json file() const { return json::parse(std::ifstream(folder_ / "progress.json")); }

  test::TempFolder folder_;
  job::Job job_;
  model::ModelConfig config_;
  std::optional<batch::Inputs> inputs_;
  std::optional<io::ResultsFile> results_;
  std::unique_ptr<comm::Communicator> world_ = comm::make_null_communicator();
  report::Recorder recorder_;
  std::optional<RunProgress> progress_;
};

TEST_F(RunProgressTest, CountsWhatAPassHasReadLayerByLayer) {
  show();
  progress_->begin_pass(prompts(), {});
  recorder_.set_layer(0);
  EXPECT_EQ(looked().at("prompt_tokens"), json::parse(R"({"total": 200, "done": 0})"));
  recorder_.set_layer(1);
  recorder_.add({"attention", report::Kind::compute, 0, 0, 0, 1, 0, 5e6});
  const json found = looked();
  EXPECT_EQ(found.at("prompt_tokens").at("done"), 50) << "one layer of four is done";
  EXPECT_GT(found.at("work_share"), 0);
  const auto speed = found.at("prefill_tokens_per_s").get<double>();
  EXPECT_GT(speed, 5) << "50 tokens in some 2.2 s";
  EXPECT_LT(speed, 25);
  recorder_.set_layer(3);
  EXPECT_EQ(looked().at("prompt_tokens").at("done"), 150);
  recorder_.set_layer(-1);  // after the last layer
  EXPECT_EQ(looked().at("prompt_tokens").at("done"), 150);
}

TEST_F(RunProgressTest, EndsWithTheSpeedsOfTheTotals) {
  show();
  progress_->begin_pass(prompts(), {});
  recorder_.set_layer(3);
  looked();
  execute::ReplicaTotals totals;
  execute::PassCounter().count(prompts(), {0, 4, 0}, totals);
  totals.done = 2;
  totals.output_tokens += 30;
  totals.tbt_s.assign(30, 0.1);
  totals.decode_s = 3;
  progress_->add(totals);
  progress_->finish({.done = 2});
  const json found = file();
  EXPECT_EQ(found.at("prompt_tokens").at("done"), 200)
      << "what was told within the pass is not counted twice";
  EXPECT_DOUBLE_EQ(found.at("prefill_tokens_per_s").get<double>(), 200 / 4.0);
  EXPECT_DOUBLE_EQ(found.at("decode_tokens_per_s").get<double>(), 30 / 3.0);
  EXPECT_EQ(found.at("output_tokens"), 32);
  EXPECT_EQ(found.at("work_share"), 1);
  ASSERT_EQ(found.at("starts").size(), 1u);
  EXPECT_EQ(found.at("starts")[0].at("done"), 2);
  EXPECT_EQ(found.at("starts")[0].at("cores"), 2);
}

TEST_F(RunProgressTest, CountsWhatASaveHadWhenItIsRead) {
  show();
  schedule::Plan restoring = prompts();
  restoring.items.pop_back();
  restoring.restore = "kv/a";
  progress_->begin_pass(restoring, {});
  recorder_.set_layer(3);
  EXPECT_EQ(looked().at("prompt_tokens").at("done"), 0) << "it may be damaged";
  execute::ReplicaTotals totals;
  totals.restored_tokens = 100;
  totals.restored_flops = inputs_->flops_of(100);
  progress_->add(totals);
  const json found = looked();
  EXPECT_EQ(found.at("prompt_tokens").at("done"), 100);
  EXPECT_EQ(found.at("prefill_tokens_per_s"), 0);
  EXPECT_EQ(found.at("remaining_s"), nullptr) << "reading says nothing about computing";
}

TEST_F(RunProgressTest, OfAContinuedRunHasReadWhatEarlierStartsDid) {
  io::TurnResult result;
  result.tokens = {1};
  result.token_logprobs = {-0.5f};
  results_->write(0, result, io::TurnState::done);
  show({{.seconds = 9, .done = 1, .prompt_tokens = 100}});
  progress_->begin_pass(prompts(), {});
  const json found = looked();
  EXPECT_EQ(found.at("prompt_tokens").at("done"), 100);
  ASSERT_EQ(found.at("starts").size(), 2u);
  EXPECT_EQ(found.at("starts")[0].at("prompt_tokens"), 100);
  EXPECT_EQ(found.at("starts")[1].at("prompt_tokens"), 0);
  EXPECT_EQ(found.at("starts")[1].at("done"), 0);
}

}  // namespace
}  // namespace pecia::run
