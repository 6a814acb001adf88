// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/foresight/choice.hpp"
#include "lib/foresight/fit.hpp"
#include "tests/foresight/small_job.hpp"

namespace pecia::foresight {
namespace {

/// What a batch's passes take on one rank.
WorkSeconds work_of(const std::vector<int64_t>& prompts, int64_t answers,
                    const machines::Cluster& cluster) {
  SmallJob small;
  small.cluster = cluster;
  Passes passes(small.setting());
  Batches batches(requests_of(prompts, answers), small.config);
  const Foreseen plan = played_in(passes, batches, layout_by_rule(small.setting(), 1), 1);
  const RankTimes &prefill = plan.end->prefill.times, &decode = plan.end->decode.times;
  return {prefill.gemm_s + decode.gemm_s, prefill.attention_s, decode.attention_s,
          prefill.other_s + decode.other_s, 0};
}

Observation observed(const std::vector<int64_t>& prompts, int64_t answers,
                     const machines::Cluster& truth) {
  const WorkSeconds taken = work_of(prompts, answers, truth);
  return {"batch",
          {taken.gemm_s, taken.prompts_s + taken.answers_s, taken.other_s, taken.all_s()},
          [=](const machines::Cluster& cluster) { return work_of(prompts, answers, cluster); }};
}

TEST(FitCluster, FindsTheMachineThatWasObserved) {
  machines::Cluster truth = small_cluster();
  truth.efficiency.gemm.factor = 0.35;
  truth.efficiency.attention.factor = 0.6;
  truth.efficiency.copy.factor = 0.4;
  truth.efficiency.stream = machines::Efficiency{0.3};
  const std::vector<Observation> observations{observed({2000}, 2, truth),
                                              observed({200, 200, 200, 200}, 80, truth)};
  const FittedCluster found = fit_cluster(small_cluster(), observations);
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
      "products at twice their peak", {0.5, 0, 0, 0.5}, [](const machines::Cluster& cluster) {
        return WorkSeconds{.gemm_s = 1 / cluster.efficiency.gemm.factor};
      }};
  const FittedCluster found = fit_cluster(small_cluster(), {faster});
  EXPECT_EQ(found.cluster.efficiency.gemm.factor, 1);
  EXPECT_NEAR(found.cluster.efficiency.attention.factor, 0.4, 1e-9);
  EXPECT_NEAR(found.cluster.efficiency.copy.factor, 0.8, 1e-9);
  EXPECT_EQ(found.cluster.links, small_cluster().links);
}

}  // namespace
}  // namespace pecia::foresight
