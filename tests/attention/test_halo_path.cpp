// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/halo.hpp"
#include "tests/attention/one_path.hpp"

namespace pecia::attention {
namespace {

std::unique_ptr<AttentionPath> make_halo(const Compute&, KvCache&, AttentionSteps& steps,
                                         comm::Communicator&) {
  return std::make_unique<Halo>(steps);
}

TEST(HaloPath, GivesSoftmaxOverTheWindow) {
  for (const kernels::Window window :
       {kernels::Window(1), kernels::Window(9), kernels::Window::chunks_of(9)})
    OnePath(make_halo, window).passes(AttentionExchange::pass_kv);
}

/// Chunks of 32 tokens: the last 8 keys of each go to the rank of the next one.
TEST(HaloPath, SendsEachNeighbourTheKeysThatItSees) {
  OnePath one(make_halo, 9);
  const int size = one.size(), rank = one.rank();
  one.add(1, 64 * size);
  const int64_t sent = one.pass({{1, 0, 64 * size}}, AttentionExchange::pass_kv);
  const int64_t neighbours = (rank > 0 ? 1 : 0) + (rank + 1 < size ? 1 : 0);
  EXPECT_EQ(sent, neighbours * 8 * 2 * kv_heads * head_dim * 4);
  EXPECT_EQ(Halo::goes_straight(one.rows(), 9), size > 1);
  EXPECT_FALSE(Halo::goes_straight(one.rows(), 0));
  // On few ranks each is next to every other one; on more, almost all keys would have a long way.
  EXPECT_EQ(Halo::goes_straight(one.rows(), 64 * size), 1 < size && size <= 3);
  EXPECT_FALSE(one.path().traits().attends_once);
}

}  // namespace
}  // namespace pecia::attention
