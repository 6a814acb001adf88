// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/broadcast_q.hpp"
#include "tests/attention/one_path.hpp"

namespace pecia::attention {
namespace {

std::unique_ptr<AttentionPath> make_broadcast_q(const Compute& compute, KvCache&,
                                                AttentionSteps& steps, comm::Communicator&) {
  return std::make_unique<BroadcastQ>(compute, steps);
}

TEST(BroadcastQ, GivesSoftmaxOverAllKeys) {
  for (const kernels::Window window :
       {kernels::Window(), kernels::Window(9), kernels::Window::chunks_of(9)})
    OnePath(make_broadcast_q, window).passes(AttentionExchange::broadcast_q);
}

/// A prompt's chunks of 8 tokens, two on each rank. The window reaches the last one, on rank 0.
TEST(BroadcastQ, SendsQueriesToTheRanksWithKeysThatTheySee) {
  for (const int64_t window : {0, 9}) {
    OnePath one(make_broadcast_q, window);
    const int last = one.size() - 1;
    one.add(1, 100);
    one.pass({{1, 0, 16 * one.size()}}, AttentionExchange::broadcast_q);
    const int64_t sent = one.pass({{1, 16 * one.size(), 1, last}}, AttentionExchange::broadcast_q);
    const int64_t query = heads * head_dim * 4, result = query + heads * 4;
    const int64_t asked = window == 0 ? last : std::min(last, 1);  // ranks
    const bool answers = one.rank() != last && one.rank() < asked;
    EXPECT_EQ(sent, one.rank() == last ? asked * query : answers ? result : 0);
    const int64_t whole = one.rank() == last ? last * query : result;
    EXPECT_EQ(one.bytes_without_window(), whole);
  }
}

}  // namespace
}  // namespace pecia::attention
