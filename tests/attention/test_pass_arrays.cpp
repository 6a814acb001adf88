// SPDX-License-Identifier: Apache-2.0
/// How long the arrays are that a pass gives to attention: they follow from sequences and new
/// tokens, not from how many tokens are cached.

#include <gtest/gtest.h>

#include "kernels/phantom/idle.hpp"
#include "lib/model/attention/attention.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "tests/attention/groups.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

using parallel::PassSequence;

/// Counts what attention is given, and computes nothing.
class CountingBackend : public kernels::IdleBackend {
 public:
  void attention(const kernels::AttentionArgs& args, device::Stream&) override {
    rows += args.query_positions.size();
    runs += args.runs.size();
    for (const kernels::KeyRun& run : args.runs) keys += run.num_keys;
  }

  size_t rows = 0, runs = 0;
  int64_t keys = 0;
};

constexpr int64_t sequences = 64, decoded = 20;

/// Of a decode step of 64 sequences, after prompts of `context` tokens and some steps.
CountingBackend decode_step(int64_t context, int virtual_ranks) {
  auto owned = std::make_unique<CountingBackend>();
  CountingBackend& backend = *owned;
  test::OwnedCompute compute(device::make_host_device(1), std::move(owned));
  const ReplicaGroups alone = groups_of_one_rank();
  const int64_t reserved = context + decoded + 8 * 16;
  KvCache cache({1, 1, 2, DType::bf16}, sequences * reserved, *compute.device);
  Attention attention(alone, {1, 1}, {0}, compute, cache,
                      virtual_ranks == 0 ? kernels::RowInvariant::no : kernels::RowInvariant::yes);
  const auto pass_of = [&](auto make) {
    std::vector<PassSequence> pass;
    for (int64_t i = 0; i < sequences; ++i) pass.push_back(make(i));
    return pass;
  };
  for (int64_t i = 0; i < sequences; ++i) attention.ledger().add(i, {reserved / 8 * 8});
  const parallel::Team team = parallel::team_of_all(1, parallel::AttentionExchange::pass_q);
  attention.begin_pass(
      {{team, pass_of([&](int64_t i) {
          return PassSequence{i, 0, context, PassSequence::balanced, virtual_ranks};
        })}},
      0);
  for (int64_t step = 0; step < decoded; ++step)
    attention.begin_pass({{team, pass_of([&](int64_t i) {
                             const int64_t position = context + step;
                             return PassSequence{
                                 i, position, 1,
                                 virtual_ranks == 0 ? 0 : parallel::generated_owner(position, i),
                                 virtual_ranks};
                           })}},
                         0);
  std::vector<float> values(sequences * 2);
  const TensorView rows(static_cast<void*>(values.data()), DType::fp32, {sequences, 1, 2});
  attention.start_keys(rows, rows);
  attention.run(0, rows, rows);
  return backend;
}

TEST(PassArrays, OfADecodeStepDoNotGrowWithTheContext) {
  for (const int64_t context : {8192, 65536}) {
    const CountingBackend found = decode_step(context, 0);
    EXPECT_EQ(found.keys, sequences * (context + decoded));
    EXPECT_EQ(found.rows, sequences);
    EXPECT_EQ(found.runs, sequences);
  }
}

TEST(PassArrays, OfVirtualRanksHaveThreeRunsEachAtMost) {
  size_t runs = 0;
  for (const int64_t context : {8192, 65536}) {
    const CountingBackend found = decode_step(context, parallel::layout_ranks);
    EXPECT_EQ(found.keys, sequences * (context + decoded));
    EXPECT_EQ(found.rows, sequences * parallel::layout_ranks);
    EXPECT_LE(found.runs, 3 * sequences * parallel::layout_ranks);
    if (runs > 0) {
      EXPECT_EQ(found.runs, runs);
    }
    runs = found.runs;
  }
}

}  // namespace
}  // namespace pecia::attention
