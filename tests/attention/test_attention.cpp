// SPDX-License-Identifier: Apache-2.0
/// Attention of all ranks as one team, in each way of a pass.

#include <mpi.h>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/parallel/ring.hpp"
#include "tests/attention/ringed.hpp"

namespace pecia::attention {
namespace {

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

struct EveryRing : testing::TestWithParam<std::tuple<AttentionExchange, kernels::Window, DType>> {};

TEST_P(EveryRing, EqualsAttentionOverAllKeys) {
  const auto [ring, window, dtype] = GetParam();
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, window, dtype);
  const std::vector<int64_t> lengths{1, 2, 2 * size - 1, 2 * size, 2 * size + 1, 37, 90};
  std::vector<PassSequence> prefill, chunk;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto sequence = static_cast<int64_t>(i);
    ringed.add(sequence, 150);
    prefill.push_back({sequence, 0, lengths[i]});
    chunk.push_back({sequence, lengths[i], static_cast<int64_t>(i) + 1});
  }
  ringed.pass(prefill, ring);
  ringed.pass(chunk, ring);
  for (int step = 0; step < 2 * size + 1; ++step) {  // decode, dealt round-robin
    std::vector<PassSequence> decode;
    for (size_t i = 0; i < lengths.size(); ++i)
      decode.push_back({static_cast<int64_t>(i), ringed.length(static_cast<int64_t>(i)), 1,
                        static_cast<int32_t>((i + step) % size)});
    ringed.pass(decode, ring);
  }
  ringed.remove(3);
  ringed.add(100, 40);
  ringed.pass({{100, 0, 11}, {6, ringed.length(6), 5}}, ring);
}

TEST_P(EveryRing, ChildrenSeeTheirParent) {
  const auto [ring, window, dtype] = GetParam();
  const auto comm = world();
  Ringed ringed(*comm, window, dtype);
  ringed.add(1, 60);
  ringed.pass({{1, 0, 50}}, ring);
  ringed.add(2, 20, 1);
  ringed.add(3, 20, 1);
  ringed.pass({{2, 50, 7}, {3, 50, 1}}, ring);
  ringed.pass({{2, 57, 1, 0}, {3, 51, 1, comm->size() - 1}}, ring);
  ringed.remove(2);
  ringed.pass({{3, 52, 3}}, ring);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, EveryRing,
    testing::Combine(testing::Values(AttentionExchange::pass_kv, AttentionExchange::pass_q,
                                     AttentionExchange::broadcast_q),
                     testing::Values(kernels::Window(), kernels::Window(1), kernels::Window(16),
                                     kernels::Window::chunks_of(24)),
                     testing::Values(DType::fp32, DType::fp8)));

/// Tokens of a balanced prompt that a rank sends on: all but those of the rank after it.
int64_t passed_on(int64_t tokens, int size, int rank) {
  if (size == 1) return 0;
  for (const auto& chunk : parallel::owned_chunks(tokens, size, (rank + 1) % size))
    tokens -= chunk.size();
  return tokens;
}

TEST(Traffic, PassKvSendsTheFormulasBytes) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  ringed.add(1, 100), ringed.add(2, 100);
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 0, 41}, {2, 0, 3}}, AttentionExchange::pass_kv);
  // (N−1) messages of 2 · Hkv · D · e for each token.
  const int64_t tokens = passed_on(41, size, comm->rank()) + passed_on(3, size, comm->rank());
  const int64_t bytes = 2 * kv_heads * head_dim * 4 * tokens;
  EXPECT_EQ(comm->traffic().bytes - before, bytes);
}

TEST(Traffic, PassKvSendsScalesWithCodes) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0, DType::fp8);
  ringed.add(1, 100);
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 0, 41}}, AttentionExchange::pass_kv);
  const int64_t bytes = 2 * kv_heads * (head_dim + 4) * passed_on(41, size, comm->rank());
  EXPECT_EQ(comm->traffic().bytes - before, bytes);
}

/// Chunks of 32 tokens and a window of 9: the last 8 keys of each chunk go to the rank with the next
/// chunk, if that is another one. So every rank but the first and the last one has two neighbours.
TEST(Traffic, AWindowSendsItsHaloToNeighboursAlone) {
  const auto comm = world();
  const int size = comm->size(), rank = comm->rank();
  for (const DType dtype : {DType::fp32, DType::fp8}) {
    Ringed ringed(*comm, 9, dtype);
    ringed.add(1, 64 * size);
    const comm::Traffic before = comm->traffic();
    ringed.pass({{1, 0, 64 * size}}, AttentionExchange::pass_kv);
    const int64_t neighbours = (rank > 0 ? 1 : 0) + (rank + 1 < size ? 1 : 0);
    const int64_t vector_bytes = dtype == DType::fp8 ? head_dim + 4 : head_dim * 4;
    EXPECT_EQ(comm->traffic().bytes - before.bytes, neighbours * 8 * 2 * kv_heads * vector_bytes);
    const int64_t tensors = dtype == DType::fp8 ? 4 : 2;  // keys, values and their scales
    EXPECT_EQ(comm->traffic().messages - before.messages, neighbours * tensors);
  }
}

/// A window of 9 after 64 tokens for each rank: the last 8 cached tokens lie on rank 0.
TEST(Traffic, AWindowsQueriesGoToTheRanksWithKeysThatTheySee) {
  const auto comm = world();
  const int size = comm->size(), last = size - 1;
  for (const AttentionExchange ring : {AttentionExchange::pass_q, AttentionExchange::broadcast_q}) {
    Ringed ringed(*comm, 9);
    ringed.add(1, 65 * size);
    ringed.pass({{1, 0, 64 * size}}, AttentionExchange::pass_kv);
    const comm::Traffic before = comm->traffic();
    ringed.pass({{1, 64 * size, 1, last}}, ring);
    const int64_t query = heads * head_dim * 4, home = query + heads * 4;
    const bool asks = size > 1 && comm->rank() == last, answers = size > 1 && comm->rank() == 0;
    EXPECT_EQ(comm->traffic().bytes - before.bytes, asks ? query : answers ? home : 0);
    EXPECT_EQ(comm->traffic().messages - before.messages, asks ? 1 : answers ? 2 : 0);
  }
}

/// A row of `width` numbers of a token goes round for all heads, and is the values, too. Results equal
/// softmax over all keys.
TEST(Traffic, LatentsTravelOnceForAllHeads) {
  constexpr int64_t width = 24, value_width = 16, num_heads = 8, tokens = 53;
  const auto comm = world();
  const int size = comm->size(), rank = comm->rank();
  for (const DType dtype : {DType::fp32, DType::fp8})
    for (const AttentionExchange ring :
         {AttentionExchange::pass_kv, AttentionExchange::pass_q, AttentionExchange::broadcast_q}) {
      test::CpuCompute compute(1, kernels::make_reference_backend());
      KvCache cache({1, 1, width, dtype, value_width}, 200, *compute.device);
      const ReplicaGroups groups = ring_groups(*comm);
      Attention attention(groups, {num_heads, 1}, {0}, compute, cache);
      attention.ledger().add(1, std::vector<int64_t>(size, 100));
      const parallel::Team team = parallel::team_of_all(size, ring);
      attention.begin_pass({{team, {{1, 0, tokens}}}}, 1);
      const std::vector<int64_t> positions = attention.positions();
      const auto rows = std::ssize(positions);
      std::vector<float> q, k, out(rows * num_heads * value_width, NAN);
      for (const int64_t position : positions) {
        const auto add = [](std::vector<float>& to, const std::vector<float>& from) {
          to.insert(to.end(), from.begin(), from.end());
        };
        add(q, vector_of(1, 1, position, num_heads * width));
        add(k, vector_of(2, 1, position, width));
      }
      const int64_t before = comm->traffic().bytes;
      attention.start_keys(TensorView(k.data(), DType::fp32, {rows, 1, width}), {});
      attention.run(0, TensorView(q.data(), DType::fp32, {rows, num_heads, width}),
                    TensorView(out.data(), DType::fp32, {rows, num_heads, value_width}));
      if (ring == AttentionExchange::pass_kv) {
        const int64_t row_bytes = dtype == DType::fp8 ? width + 4 : width * 4;
        EXPECT_EQ(comm->traffic().bytes - before, row_bytes * passed_on(tokens, size, rank));
      }
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t h = 0; h < num_heads; ++h) {
          std::vector<double> sum(value_width);
          double all = 0;
          for (int64_t at = 0; at <= positions[row]; ++at) {
            const auto key = stored_vectors(vector_of(2, 1, at, width), dtype, width);
            double score = 0;
            for (int64_t i = 0; i < width; ++i)
              score += double{q[(row * num_heads + h) * width + i]} * key[i];
            const double weight = std::exp(score / std::sqrt(double{width}));
            all += weight;
            for (int64_t i = 0; i < value_width; ++i) sum[i] += weight * key[i];
          }
          for (int64_t i = 0; i < value_width; ++i)
            ASSERT_NEAR(out[(row * num_heads + h) * value_width + i], sum[i] / all, 2e-5)
                << "row at " << positions[row] << ", head " << h;
        }
    }
}

TEST(Traffic, PassQSendsTheFormulasBytes) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  const int64_t tokens = 4 * 2 * size;  // equal shards: T/N rows on each rank
  ringed.add(1, tokens);
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 0, tokens}}, AttentionExchange::pass_q);
  const int64_t rows = tokens / size;
  const int64_t ring = (size - 1) * rows * heads * head_dim * 4;
  const int64_t home = (size - 1) * rows * (heads * head_dim + heads) * 4;
  EXPECT_EQ(comm->traffic().bytes - before, ring + home);
}

TEST(Traffic, BroadcastQSendsQueriesToHoldersAlone) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  ringed.add(1, 20), ringed.add(2, 20);
  ringed.pass({{1, 0, 1, 0}, {2, 0, 12}},
              AttentionExchange::pass_kv);  // 1 on rank 0 alone, 2 on several
  int holders = 0;
  for (int rank = 0; rank < size; ++rank)
    holders += parallel::num_rows({{2, 0, 12}}, size, rank) > 0 ? 1 : 0;
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 1, 1, 0}, {2, 12, 1, 0}}, AttentionExchange::broadcast_q);
  // Both new rows are rank 0's: the first stays, the second goes to the other holders of 2.
  const bool root = comm->rank() == 0;
  const bool holds = parallel::num_rows({{2, 0, 12}}, size, comm->rank()) > 0;
  const int64_t row = heads * head_dim * 4, home = (heads * head_dim + heads) * 4;
  EXPECT_EQ(comm->traffic().bytes - before, root ? (holders - 1) * row : holds ? home : 0);
}

TEST(Traffic, DecodeHasNoPaddingRows) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  ringed.add(1, 20);
  ringed.pass({{1, 0, 5}}, AttentionExchange::pass_kv);
  const double before = comm->all_reduce_sum(static_cast<double>(comm->traffic().bytes));
  ringed.pass({{1, 5, 1, 0}}, AttentionExchange::pass_q);  // one row, on rank 0
  const double after = comm->all_reduce_sum(static_cast<double>(comm->traffic().bytes));
  EXPECT_EQ(after - before, (size - 1) * (heads * head_dim + heads * head_dim + heads) * 4);
}

}  // namespace
}  // namespace pecia::attention
