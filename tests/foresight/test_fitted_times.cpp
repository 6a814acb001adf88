// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/foresight/fitted_times.hpp"
#include "tests/foresight/small_grid.hpp"

namespace pecia::foresight {
namespace {

/// What a chunk and a step take by times that were fitted to others agrees with a replay of them.
TEST(FittedTimes, OfPassesBetweenTheReplayedOnes) {
  const model::ModelConfig config = small_model(6);
  const machines::Cluster cluster =
      machines::parse_cluster(*machines::preset_text("h200-nvswitch"), "preset");
  const job::Job job;
  for (const int cp : {1, 2}) {
    resources::Resources resources;
    resources.cp = cp;
    resources.prefill = cp > 1 ? parallel::PrefillMode::ring : parallel::PrefillMode::single;
    resources.decode = cp > 1 ? parallel::DecodeMode::pass_q : parallel::DecodeMode::single;
    resources.ring = parallel::Ring::pass_kv;
    resources.max_batch_tokens = 1024;
    resources.max_sequences = 8;
    const Replica replica{job, config, resources, DType::bf16};
    schedule::TeamTimes times(
        {schedule::RateFit({1e-4, 1e-6, 1e-9}), schedule::RateFit({1e-4, 1e-6, 1e-9})},
        {.bytes_per_second = 1e9}, cp);
    fit_times(replica, cluster, 2048, times);
    const RequestTime found = foresee(replica, cluster, {1024, 0, 2});
    EXPECT_NEAR(times.prefill_s(cp, 0, 1024, 1024), found.ttft_s, 0.1 * found.ttft_s) << cp;
    EXPECT_NEAR(times.decode_s(cp, cp, 1, 1025), found.tbt_s, 0.15 * found.tbt_s) << cp;
  }
}

}  // namespace
}  // namespace pecia::foresight
