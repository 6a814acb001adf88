// SPDX-License-Identifier: Apache-2.0
/// A rank of TP attends its heads block by block of rows: the same results as softmax over all keys,
/// also where keys behind the block are not stored yet.

#include <algorithm>

#include "lib/model/attention/attention.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "tests/attention/groups.hpp"
#include "tests/attention/softmax.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

/// Rank 0 of two that share heads, with half of the model's.
struct HalfOfTheHeads {
  HalfOfTheHeads(kernels::Window window, DType dtype, kernels::RowInvariant invariant)
      : cache({1, kv_heads, head_dim, dtype}, capacity, *compute.device),
        attention(groups, {2 * heads, 2 * kv_heads}, {window}, compute, cache, invariant) {}

  static ReplicaGroups made() {
    ReplicaGroups groups = groups_of_one_rank();
    groups.place = {1, 2, 0, 0};
    return groups;
  }
  Vectors begin(const std::vector<PassSequence>& pass) {
    const parallel::Team team = parallel::team_of_all(1, AttentionExchange::pass_kv);
    attention.ledger().settle();
    attention.begin_pass({{team, pass}}, ++passes);
    return {pass, team, 0};
  }

  int64_t passes = 0;
  test::CpuCompute compute;
  KvCache cache;
  ReplicaGroups groups = made();
  Attention attention;
};

struct EveryWindow : testing::TestWithParam<std::tuple<kernels::Window, DType>> {};

TEST_P(EveryWindow, RowsSeeTheKeysBeforeThem) {
  const auto [window, dtype] = GetParam();
  HalfOfTheHeads half(window, dtype, kernels::RowInvariant::no);
  Attention& attention = half.attention;
  attention.ledger().add(9, {1500});
  Vectors nowhere = half.begin({{9, 0, 1500}});
  for (const TensorView& keys : {nowhere.k(), nowhere.v()})
    std::fill_n(static_cast<float*>(keys.data()), keys.elements(), NAN);
  attention.start_keys(nowhere.k(), nowhere.v());
  attention.run(0, nowhere.q(), nowhere.out());
  attention.ledger().remove(9);  // whose slots the others get, with NaN in them

  Softmax softmax(window, dtype);
  for (const int64_t sequence : {1, 2}) {
    attention.ledger().add(sequence, {700});
    softmax.add(sequence, {});
  }
  for (const std::vector<PassSequence>& pass :
       {std::vector<PassSequence>{{1, 0, 33}}, {{1, 33, 530}, {2, 0, 507}}}) {
    Vectors of = half.begin(pass);
    const auto blocks = std::ssize(attention.rows().blocks);
    ASSERT_EQ(attention.runs_blocks(), blocks > 1);
    if (blocks == 1) {
      attention.start_keys(of.k(), of.v());
      attention.run(0, of.q(), of.out());
    }
    for (int block = 0; blocks > 1 && block < blocks; ++block)
      attention.run_block(0, block, {of.q(), of.k(), of.v()}, of.out());
    softmax.check(attention.ledger().map(), of);
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, EveryWindow,
                         testing::Combine(testing::Values(kernels::Window(), kernels::Window(16)),
                                          testing::Values(DType::fp32, DType::bf16, DType::fp8)));

TEST(RowBlocks, AreAttendedTogetherWhereBitsMustNotDependOnThePass) {
  HalfOfTheHeads half(0, DType::fp32, kernels::RowInvariant::yes);
  half.attention.ledger().add(1, {1024});
  half.begin({{.sequence = 1, .count = 1024, .virtual_ranks = parallel::layout_ranks}});
  EXPECT_EQ(half.attention.rows().blocks.size(), 2u);
  EXPECT_FALSE(half.attention.runs_blocks());
  EXPECT_THROW(half.attention.run_block(0, 0, {}, {}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::attention
