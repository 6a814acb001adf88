// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/pass_kv.hpp"
#include "tests/attention/one_path.hpp"

namespace pecia::attention {
namespace {

std::unique_ptr<AttentionPath> make_pass_kv(const Compute&, KvCache&, AttentionSteps& steps,
                                            comm::Communicator&) {
  return std::make_unique<PassKv>(steps);
}

TEST(PassKv, GivesSoftmaxOverAllKeys) {
  for (const kernels::Window window :
       {kernels::Window(), kernels::Window(9), kernels::Window::chunks_of(9)})
    OnePath(make_pass_kv, window).passes(AttentionExchange::pass_kv);
}

TEST(PassKv, SendsAllKeysOnButThoseOfTheNextRank) {
  OnePath one(make_pass_kv);
  one.add(1, 100);
  const int64_t sent = one.pass({{1, 0, 41}}, AttentionExchange::pass_kv);
  const int64_t tokens = one.size() > 1 ? 41 - one.rows().count((one.rank() + 1) % one.size()) : 0;
  EXPECT_EQ(sent, tokens * 2 * kv_heads * head_dim * 4);
  EXPECT_EQ(one.bytes_without_window(), sent);
}

TEST(PassKv, AttendsOnceWhereARankIsAlone) {
  OnePath one(make_pass_kv);
  one.add(1, 100);
  one.pass({{1, 0, 10 * one.size()}}, AttentionExchange::pass_kv);
  EXPECT_TRUE(one.path().traits().stores_all_rows);
  EXPECT_EQ(one.path().traits().attends_once, one.size() == 1);
}

}  // namespace
}  // namespace pecia::attention
