// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/simulation/calibration.hpp"
#include "lib/simulation/choice.hpp"
#include "lib/work/cluster_files/op_time.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/simulation/small_job.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::simulation {
namespace {

using kernels::OpWork;
using nlohmann::json;

/// What a batch's passes take on one rank.
WorkSeconds work_of(const std::vector<int64_t>& prompts, int64_t answers,
                    const cluster_files::Cluster& cluster) {
  SmallJob small;
  small.cluster = cluster;
  PassCosts costs(small.scenario());
  Batches batches(requests_of(prompts, answers), small.config);
  const LayoutForecast plan = forecast(costs, batches, layout_by_rule(small.scenario(), 1), 1);
  const RankTimes &prefill = plan.end->prefill.times, &decode = plan.end->decode.times;
  return {prefill.gemm_s + decode.gemm_s, prefill.attention_s, decode.attention_s,
          prefill.other_s + decode.other_s, 0};
}

Observation observed(const std::vector<int64_t>& prompts, int64_t answers,
                     const cluster_files::Cluster& truth) {
  const WorkSeconds taken = work_of(prompts, answers, truth);
  return {
      "batch",
      {taken.gemm_s, taken.prompts_s + taken.answers_s, taken.other_s, taken.all_s()},
      [=](const cluster_files::Cluster& cluster) { return work_of(prompts, answers, cluster); }};
}

TEST(FitCluster, FindsTheMachineThatWasObserved) {
  cluster_files::Cluster truth = small_cluster();
  truth.efficiency.gemm.factor = 0.35;
  truth.efficiency.attention.factor = 0.6;
  truth.efficiency.copy.factor = 0.4;
  truth.efficiency.stream = cluster_files::Efficiency{0.3};
  const std::vector<Observation> observations{observed({2000}, 2, truth),
                                              observed({200, 200, 200, 200}, 80, truth)};
  const Calibration found = fit_cluster(small_cluster(), observations);
  for (const auto& each : found.residuals) {
    EXPECT_GT(std::abs(each.before_s / each.taken_s - 1), 0.05);
    EXPECT_NEAR(each.after_s, each.taken_s, 0.03 * each.taken_s);
  }
  // Another batch is foreseen as well.
  const double other_s = work_of({700, 300}, 20, truth).all_s();
  EXPECT_NEAR(work_of({700, 300}, 20, found.cluster).all_s(), other_s, 0.05 * other_s);
  EXPECT_NEAR(found.cluster.efficiency.gemm.factor, 0.35, 0.02);
}

TEST(FitCluster, KeepsWhatNothingTellsOfAndStaysBelowThePeak) {
  const Observation faster{
      "products at twice their peak", {0.5, 0, 0, 0.5}, [](const cluster_files::Cluster& cluster) {
        return WorkSeconds{.gemm_s = 1 / cluster.efficiency.gemm.factor};
      }};
  const Calibration found = fit_cluster(small_cluster(), {faster});
  EXPECT_EQ(found.cluster.efficiency.gemm.factor, 1);
  EXPECT_NEAR(found.cluster.efficiency.attention.factor, 0.4, 1e-9);
  EXPECT_NEAR(found.cluster.efficiency.copy.factor, 0.8, 1e-9);
  EXPECT_EQ(found.cluster.links, small_cluster().links);
}

OpWork product(int64_t rows, int64_t depth, int64_t width) {
  OpWork op{.name = "linear", .dtype = DType::fp32, .rows = rows};
  op.depth = static_cast<double>(depth), op.width = width;
  op.flops = 2.0 * static_cast<double>(rows * depth * width);
  op.bytes_read = 4 * (rows * depth + depth * width), op.bytes_written = 4 * rows * width;
  return op;
}

/// Of one query per head, or of as many queries as there are keys.
OpWork attention(int64_t rows, int64_t keys) {
  OpWork op{.name = "attention", .dtype = DType::fp32, .rows = rows};
  op.item_rows = static_cast<double>(rows);
  op.depth = static_cast<double>(keys), op.width = 64;
  op.flops = 4.0 * static_cast<double>(rows * keys * 64);
  op.bytes_read = 4 * 2 * keys * 64;
  return op;
}

OpWork copy(int64_t bytes) {
  return {.name = "rms_norm", .dtype = DType::fp32, .rows = 1, .bytes_read = bytes};
}

class TimedOps : public testing::Test {
 protected:
  /// A line of pecia-bench ops for an op that took as long as on this cluster.
  json line(const OpWork& op, const cluster_files::Cluster& truth) const {
    return {{"op", op.name},
            {"shape", std::to_string(op.bytes_read)},
            {"median_s", cluster_files::op_seconds(op, truth, 0)},
            {"work", json::array({work_json(op)})}};
  }
  void write(const std::vector<json>& lines) const {
    std::ofstream out(file_);
    for (const json& each : lines) out << each.dump() << "\n";
  }

  const json head_{{"machine", "2 threads"}, {"backend", "cpu"}, {"commit", "0"}};
  const test::TempFolder folder_;
  const std::filesystem::path file_ = folder_ / "bench.jsonl";
};

TEST_F(TimedOps, FitEveryEfficiency) {
  cluster_files::Cluster start = small_cluster();
  start.rank.flops[DType::fp32] = 2e10;  // so that a single query waits for its keys
  start.overhead.op_us = 0;
  cluster_files::Cluster truth = start;
  truth.efficiency.gemm.factor = 0.35, truth.efficiency.attention.factor = 0.6;
  truth.efficiency.copy.factor = 0.5, truth.efficiency.stream = cluster_files::Efficiency{0.3};
  write({head_, line(product(512, 64, 128), truth), line(product(64, 128, 64), truth),
         line(attention(512, 512), truth), line(attention(1, 4000), truth),
         line(copy(100'000), truth), json{{"bench", "bench_decode"}}});
  const auto found = fit_cluster(start, timed_ops(file_, false));
  ASSERT_EQ(found.residuals.size(), 5u);
  EXPECT_NEAR(found.cluster.efficiency.gemm.factor, 0.35, 0.01);
  EXPECT_NEAR(found.cluster.efficiency.attention.factor, 0.6, 0.01);
  EXPECT_NEAR(found.cluster.efficiency.copy.factor, 0.5, 0.01);
  EXPECT_NEAR(found.cluster.efficiency.stream->factor, 0.3, 0.01);
  for (const auto& each : found.residuals)
    EXPECT_NEAR(each.after_s, each.taken_s, 0.02 * each.taken_s);
}

TEST_F(TimedOps, LeaveOutWhatNoRunCalls) {
  const cluster_files::Cluster truth = small_cluster();
  json invariant = line(product(8, 64, 64), truth), other = line(attention(8, 8), truth);
  invariant["row_invariant"] = true;
  other["op"] = "attention (static)";
  write({head_, invariant, other, line(copy(1000), truth)});
  const auto found = timed_ops(file_, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().name, "rms_norm, 1000");
}

TEST_F(TimedOps, ThatAreWrongAreRefusedWithTheLine) {
  const auto refused = [&](const std::vector<json>& lines, const char* word) {
    write(lines);
    test::expect_error<InputError>([&] { timed_ops(file_, false); }, {"bench.jsonl", word});
  };
  const json good = line(copy(1000), small_cluster());
  refused({head_}, "no op of a run");
  refused({head_, "text"}, ":2: not a JSON object");
  json gpu = head_;
  gpu["backend"] = "cuda";
  refused({gpu, good}, "ops of the backend cuda; the cluster is of cpu");
  for (const char* key : {"op", "shape", "median_s", "work"}) {
    json without = good;
    without.erase(key);
    refused({head_, without}, key);
  }
  json zero = good, operands = good, negative = good;
  zero["median_s"] = 0;
  refused({head_, zero}, "median_s");
  operands["work"][0]["operands"] = "int64";
  refused({head_, operands}, "operands");
  negative["work"][0]["bytes"] = -1;
  refused({head_, negative}, "bytes");
  test::expect_error<InputError>([&] { timed_ops(folder_ / "none.jsonl", false); },
                                 {"none.jsonl", "cannot be read"});
}

}  // namespace
}  // namespace pecia::simulation
