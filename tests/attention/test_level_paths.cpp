// SPDX-License-Identifier: Apache-2.0
/// Levels and HeadLevels without drop: with disjoint geometry each key is then seen once.
/// test_level_attention has what they keep of the tokens.

#include "lib/model/attention/head_levels.hpp"
#include "lib/model/attention/levels.hpp"
#include "tests/attention/one_path.hpp"

namespace pecia::attention {
namespace {

constexpr int32_t contiguous = PassSequence::contiguous;
const parallel::SparseSetting nothing_dropped{{parallel::Geometry::disjoint, 0}, {}, {}};

std::unique_ptr<AttentionPath> make_level_path(const Compute& compute, KvCache& cache,
                                               AttentionSteps& steps, comm::Communicator& comm) {
  const LevelRanks ranks{std::vector<comm::RackServerGpu>(comm.size())};
  return std::make_unique<Levels>(compute, cache, steps, ranks, comm.rank(), nothing_dropped);
}

TEST(LevelsPath, GivesSoftmaxOverAllKeys) {
  OnePath one(make_level_path);
  one.add(1, 200), one.add(2, 200);
  EXPECT_EQ(
      one.pass({{1, 0, 90, contiguous}, {2, 0, 1, contiguous}}, AttentionExchange::levels) > 0,
      one.size() > 1);
  one.pass({{2, 1, 40, contiguous}, {1, 90, 35, contiguous}}, AttentionExchange::levels);
  one.add(3, 200, 1);
  one.pass({{3, 125, 33, contiguous}}, AttentionExchange::levels);
  EXPECT_FALSE(one.path().traits().stores_all_rows);
}

TEST(LevelsPath, RefusesRowsThatAreNotContiguous) {
  OnePath one(make_level_path);
  one.add(1, 200);
  EXPECT_THROW(one.pass({{1, 0, 90}}, AttentionExchange::levels), InvalidArgument);
}

/// Each rank has all tokens, and counts as having other heads than the others.
TEST(HeadLevelsPath, GivesSoftmaxOverAllKeysAndSendsNone) {
  const auto comm = world();
  const auto make = [&](const Compute& compute, KvCache& cache, AttentionSteps& steps,
                        comm::Communicator&) {
    const LevelRanks ranks{std::vector<comm::RackServerGpu>(comm->size()), comm.get(), 1};
    return std::make_unique<HeadLevels>(compute, cache, steps, ranks, comm->rank(),
                                        nothing_dropped);
  };
  OnePath one(make, 0, 0, comm::make_null_communicator());
  one.add(1, 200), one.add(2, 200);
  EXPECT_EQ(one.pass({{1, 0, 90, contiguous}, {2, 0, 1, contiguous}}, AttentionExchange::levels),
            0);
  one.pass({{2, 1, 40, contiguous}, {1, 90, 35, contiguous}}, AttentionExchange::levels);
  one.add(3, 200, 1);
  one.pass({{3, 125, 33, contiguous}}, AttentionExchange::levels);
  EXPECT_FALSE(one.path().traits().stores_all_rows);
}

}  // namespace
}  // namespace pecia::attention
