// SPDX-License-Identifier: Apache-2.0
/// Invariant by itself; test_invariant_attention compares its bits with one rank's.

#include "lib/model/attention/invariant.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "tests/attention/one_path.hpp"

namespace pecia::attention {
namespace {

using parallel::layout_ranks;

std::unique_ptr<AttentionPath> make_invariant(const Compute& compute, KvCache&,
                                              AttentionSteps& steps, comm::Communicator& comm) {
  return std::make_unique<Invariant>(compute, steps, comm.size());
}

TEST(InvariantPath, GivesSoftmaxOverAllKeys) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const AttentionExchange ring : {AttentionExchange::pass_kv, AttentionExchange::pass_q}) {
    OnePath one(make_invariant, 0, layout_ranks / ranks);
    one.add(1, 200);
    one.pass({{1, 0, 90, PassSequence::balanced, layout_ranks}}, ring);
    one.pass({{1, 90, 30, PassSequence::balanced, layout_ranks}}, ring);
    one.pass({{1, 120, 1, parallel::generated_owner(120, 1), layout_ranks}}, ring);
    EXPECT_FALSE(one.path().traits().stores_all_rows);
    EXPECT_FALSE(one.path().traits().attends_once);
  }
}

TEST(InvariantPath, RefusesSequencesThatAreNotCutForVirtualRanks) {
  const parallel::Team team = parallel::team_of_all(2);
  EXPECT_THROW(Invariant::check({{team, {{1, 0, 5}}}}, 2), InvalidArgument);
  const PassSequence cut{1, 0, 5, PassSequence::balanced, layout_ranks};
  EXPECT_NO_THROW(Invariant::check({{team, {cut}}}, 2));
  EXPECT_THROW(Invariant::check({{team, {cut}}}, 4), Unsupported);
}

}  // namespace
}  // namespace pecia::attention
