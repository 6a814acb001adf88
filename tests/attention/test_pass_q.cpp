// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/pass_q.hpp"
#include "tests/attention/one_path.hpp"

namespace pecia::attention {
namespace {

std::unique_ptr<AttentionPath> make_pass_q(const Compute& compute, KvCache&, AttentionSteps& steps,
                                           comm::Communicator&) {
  return std::make_unique<PassQ>(compute, steps);
}

TEST(PassQ, GivesSoftmaxOverAllKeys) {
  for (const kernels::Window window :
       {kernels::Window(), kernels::Window(9), kernels::Window::chunks_of(9)})
    OnePath(make_pass_q, window).passes(AttentionExchange::pass_q);
}

TEST(PassQ, SendsQueriesOnAndResultsBack) {
  OnePath one(make_pass_q);
  one.add(1, 100);
  const int64_t sent = one.pass({{1, 0, 41}}, AttentionExchange::pass_q);
  const int64_t query = heads * head_dim * 4, result = query + heads * 4;
  const int64_t others = 41 - one.rows().count(),
                next = one.rows().count((one.rank() + 1) % one.size());
  EXPECT_EQ(sent, one.size() > 1 ? (41 - next) * query + others * result : 0);
  EXPECT_EQ(one.bytes_without_window(), sent);
  EXPECT_EQ(one.path().traits().query_type, DType::fp32);  // queries travel
}

}  // namespace
}  // namespace pecia::attention
