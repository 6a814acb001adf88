// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/model/attention/pass_rows.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::attention {
namespace {

using parallel::PassSequence;
using parallel::RowRange;
using parallel::Team;
using Numbers = std::vector<int64_t>;

/// Instance 1 of 2, which has room for 20 tokens of each of two sequences.
class PassRowsTest : public testing::Test {
 protected:
  void add_both() {
    for (const int64_t sequence : {1, 2}) ledger.add(sequence, {20, 20});
  }
  std::unique_ptr<device::Device> device = device::make_host_device(1);
  KvCache cache{{1, 1, 2, DType::fp32}, 64, *device};
  KvLedger ledger{cache, 2, 1};
};

TEST_F(PassRowsTest, OfARankWithoutATeamAreNone) {
  add_both();
  const PassRows rows(ledger, {{{{0}}, {{1, 0, 5, 0}}}});
  EXPECT_FALSE(rows.has_team());
  EXPECT_TRUE(rows.positions().empty());
  EXPECT_TRUE(rows.slots().empty());
  EXPECT_EQ(ledger.map().held(1, 0), 5);  // the ledger has others' rows, too
}

/// 5 tokens in chunks of 2, of which the last one has none: [0,2) on rank 0, [2,4) [4,5) on rank 1.
TEST_F(PassRowsTest, SayWhereRowsAreAndWhoHoldsWhat) {
  add_both();
  PassRows rows(ledger, {{parallel::team_of_all(2), {{1, 0, 5}, {2, 0, 1, 0}}}});
  EXPECT_EQ(rows.index(), 1);
  EXPECT_EQ(rows.positions(0), (Numbers{0, 1, 0}));
  EXPECT_EQ(rows.positions(), (Numbers{2, 3, 4}));
  EXPECT_EQ(rows.slots(), (Numbers{0, 1, 2}));
  EXPECT_TRUE(rows.stores_all());
  EXPECT_EQ(rows.key_sequences(), (Numbers{1, 2}));
  EXPECT_EQ(rows.held(1, 0), 2);
  EXPECT_EQ(rows.held(1, 1), 3);
  EXPECT_EQ(rows.kept(Retention::all, 0), 3);
  EXPECT_EQ(rows.visiting(1), 0);

  rows = PassRows(ledger, {{parallel::team_of_all(2), {{1, 5, 1, 1}, {2, 1, 1, 1}}}});
  EXPECT_EQ(rows.positions(), (Numbers{5, 1}));
  EXPECT_EQ(rows.slots(), (Numbers{3, 20}));
  EXPECT_EQ(rows.held(1, 1), 4);
  EXPECT_EQ(rows.rows_at(1)[1].ranges, (std::vector<parallel::GlobalRange>{{1, 2}}));
}

/// Instance 0 keeps all of sequence 1, so its rows have no slots here; those of sequence 2 have.
TEST_F(PassRowsTest, OfPlacedSequencesAreNotStored) {
  add_both();
  const PassRows rows(ledger,
                      {{parallel::team_of_all(2), {{1, 0, 8}, {2, 0, 8}}, {{1, {{0, 8}}}}}});
  EXPECT_TRUE(rows.places_any());
  EXPECT_EQ(rows.stored(), (std::vector<RowRange>{{4, 8}}));
  EXPECT_FALSE(rows.stores_all());
  EXPECT_EQ(rows.slots(), (Numbers{20, 21, 22, 23}));
  EXPECT_EQ(rows.held(1, 1), 4);  // what travels from here
  EXPECT_EQ(ledger.map().held(1, 1), 0);
}

/// A step has its row on one rank. The other one stores nothing, unless virtual ranks have to, in the
/// same calls everywhere.
TEST_F(PassRowsTest, OfARankWithoutRowsAreStoredForVirtualRanksAlone) {
  add_both();
  PassRows rows(ledger, {{parallel::team_of_all(2), {{1, 0, 1, 0, 2}}}});
  EXPECT_EQ(rows.count(), 0);
  EXPECT_TRUE(rows.stored().empty());
  EXPECT_FALSE(rows.stores_all());
  rows.store_all();
  EXPECT_EQ(rows.stored(), (std::vector<RowRange>{{0, 0}}));
  EXPECT_TRUE(rows.stores_all());
}

/// Each of this instance's virtual ranks has slots of its own.
TEST_F(PassRowsTest, OfVirtualRanksHaveTheSlotsOfEach) {
  const int played = parallel::layout_ranks / 2;
  KvCache room({1, 1, 2, DType::fp32}, 8L * played, *device);
  KvLedger virtual_ledger(room, 2, 1, played);
  virtual_ledger.add(1, {4L * played, 4L * played});
  const int64_t tokens = 2 * parallel::layout_ranks;  // chunks of one token
  const PassSequence of{1, 0, tokens, PassSequence::balanced, parallel::layout_ranks};
  const PassRows rows(virtual_ledger, {{parallel::team_of_all(2), {of}}});
  ASSERT_EQ(rows.count(), 2 * played);
  for (int i = 0; i < played; ++i) {  // the i-th virtual rank has the i-th chunk and the i-th last
    EXPECT_EQ(rows.slots()[i], 4 * i);
    EXPECT_EQ(rows.slots()[2 * played - 1 - i], 4 * i + 1);
  }
  EXPECT_TRUE(rows.stores_all());
}

}  // namespace
}  // namespace pecia::attention
