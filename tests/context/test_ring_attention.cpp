// SPDX-License-Identifier: Apache-2.0
/// Ring attention on N ranks against the reference kernel over all keys at once.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <map>
#include <tuple>

#include "lib/comm/mpi_communicator.hpp"
#include "lib/context/ring_attention.hpp"
#include "lib/core/fp8_vector.hpp"
#include "lib/parallel/ring.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::context {
namespace {

using parallel::PassSequence;
using parallel::Ring;

constexpr int64_t heads = 4, kv_heads = 2, head_dim = 8, capacity = 4000;

/// Vector of a token: a function of its kind, sequence and position, so any rank can make any
/// rank's.
std::vector<float> vector_of(uint64_t kind, int64_t sequence, int64_t position, int64_t count) {
  return test::random_floats(
      count, kind * 1'000'003 + static_cast<uint64_t>(sequence * 65'537 + position));
}

/// A ring over `comm`, fed with pass after pass; checks every output row.
class Ringed {
 public:
  Ringed(comm::Communicator& comm, int64_t window, DType dtype = DType::fp32)
      : comm_(comm),
        window_(window),
        dtype_(dtype),
        compute_(1, kernels::make_reference_backend()),
        cache_({1, kv_heads, head_dim, dtype}, capacity, *compute_.device),
        attention_(comm, compute_, cache_, heads, {window}) {}

  void add(int64_t sequence, int64_t reserved, std::optional<int64_t> parent = {}) {
    attention_.add(sequence, reserved, parent);
    parents_[sequence] = parent;
  }
  void remove(int64_t sequence) { attention_.remove(sequence); }
  RingTraffic expected() const { return attention_.expected_traffic(); }
  int64_t length(int64_t sequence) const { return attention_.map().length(sequence); }

  void pass(const std::vector<PassSequence>& pass, Ring ring) {
    attention_.begin_pass(pass, ring);
    std::vector<float> q, k, v;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const PassSequence& rows : pass)
      for (const auto& range : rows_of(rows, comm_.size(), comm_.rank()))
        for (int64_t position = range.begin; position < range.end; ++position) {
          append(q, vector_of(1, rows.sequence, position, heads * head_dim));
          append(k, vector_of(2, rows.sequence, position, kv_heads * head_dim));
          append(v, vector_of(3, rows.sequence, position, kv_heads * head_dim));
        }
    const auto rows = static_cast<int64_t>(q.size()) / (heads * head_dim);
    std::vector<float> out(q.size(), NAN);
    const auto view = [&](std::vector<float>& data, int64_t count) {
      return TensorView(static_cast<void*>(data.data()), DType::fp32, {rows, count, head_dim});
    };
    attention_.run(0, view(q, heads), view(k, kv_heads), view(v, kv_heads), view(out, heads));
    check(pass, out);
  }

 private:
  void check(const std::vector<PassSequence>& pass, const std::vector<float>& out) {
    int64_t row = 0;
    for (const PassSequence& rows : pass)
      for (const auto& range : rows_of(rows, comm_.size(), comm_.rank()))
        for (int64_t position = range.begin; position < range.end; ++position, ++row)
          ASSERT_TRUE(
              test::all_close(std::span(out).subspan(row * heads * head_dim, heads * head_dim),
                              expected_row(rows.sequence, position), 1e-5))
              << "sequence " << rows.sequence << ", position " << position;
  }
  /// Of all heads of a token, as the cache has them.
  std::vector<float> stored(std::vector<float> vectors) const {
    if (dtype_ != DType::fp8) return vectors;
    for (auto head = vectors.begin(); head != vectors.end(); head += head_dim) {
      float greatest = 0;
      for (auto x = head; x != head + head_dim; ++x) greatest = std::max(greatest, std::fabs(*x));
      const float scale = fp8_scale(greatest);
      for (auto x = head; x != head + head_dim; ++x)
        *x = fp8_to_float(float_to_fp8(*x / scale)) * scale;
    }
    return vectors;
  }
  /// A key (kind 2) or value (kind 3) as the cache has it, made once.
  const std::vector<float>& stored_at(uint64_t kind, int64_t sequence, int64_t position) {
    std::vector<float>& vector = stored_[{kind, sequence, position}];
    if (vector.empty()) vector = stored(vector_of(kind, sequence, position, kv_heads * head_dim));
    return vector;
  }
  /// Softmax over all visible positions, in double.
  std::vector<float> expected_row(int64_t sequence, int64_t position) {
    const auto q = vector_of(1, sequence, position, heads * head_dim);
    const auto owner = [&](int64_t at) {
      const auto parent = parents_.at(sequence);
      return parent && at < length(*parent) ? *parent : sequence;
    };
    std::vector<double> sum(heads * head_dim), weight(heads);
    const int64_t first = window_ > 0 ? std::max<int64_t>(0, position - window_ + 1) : 0;
    for (int64_t at = first; at <= position; ++at) {
      const std::vector<float>&k = stored_at(2, owner(at), at), &v = stored_at(3, owner(at), at);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t g = h / (heads / kv_heads);
        double score = 0;
        for (int64_t d = 0; d < head_dim; ++d)
          score += double{q[h * head_dim + d]} * k[g * head_dim + d];
        const double e = std::exp(score / std::sqrt(double{head_dim}));
        weight[h] += e;
        for (int64_t d = 0; d < head_dim; ++d) sum[h * head_dim + d] += e * v[g * head_dim + d];
      }
    }
    std::vector<float> expected;
    for (int64_t i = 0; i < heads * head_dim; ++i)
      expected.push_back(static_cast<float>(sum[i] / weight[i / head_dim]));
    return expected;
  }

  comm::Communicator& comm_;
  int64_t window_;
  DType dtype_;
  test::CpuCompute compute_;
  KvCache cache_;
  RingAttention attention_;
  std::map<int64_t, std::optional<int64_t>> parents_;
  std::map<std::tuple<uint64_t, int64_t, int64_t>, std::vector<float>> stored_;
};

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

struct EveryRing : testing::TestWithParam<std::tuple<Ring, int64_t, DType>> {};

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
    testing::Combine(testing::Values(Ring::pass_kv, Ring::pass_q, Ring::broadcast_q),
                     testing::Values(0, 1, 16), testing::Values(DType::fp32, DType::fp8)));

TEST(Traffic, PassKvSendsTheFormulasBytes) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  ringed.add(1, 100), ringed.add(2, 100);
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 0, 41}, {2, 0, 3}}, Ring::pass_kv);
  // (N−1) messages of 2 · Hkv · D · e · Σ over sequences of the most that a rank holds.
  const int64_t tokens = parallel::max_owned_tokens(41, size) + parallel::max_owned_tokens(3, size);
  const int64_t bytes = (size - 1) * 2 * kv_heads * head_dim * 4 * tokens;
  EXPECT_EQ(comm->traffic().bytes - before, bytes);
  EXPECT_EQ(ringed.expected().ring_bytes, bytes);
}

TEST(Traffic, PassKvSendsScalesWithCodes) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0, DType::fp8);
  ringed.add(1, 100);
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 0, 41}}, Ring::pass_kv);
  const int64_t bytes =
      (size - 1) * 2 * kv_heads * (head_dim + 4) * parallel::max_owned_tokens(41, size);
  EXPECT_EQ(comm->traffic().bytes - before, bytes);
  EXPECT_EQ(ringed.expected().ring_bytes, bytes);
}

TEST(Traffic, PassQSendsTheFormulasBytes) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  const int64_t tokens = 4 * 2 * size;  // equal shards: T/N rows on each rank
  ringed.add(1, tokens);
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 0, tokens}}, Ring::pass_q);
  const int64_t rows = tokens / size;
  const int64_t ring = (size - 1) * rows * heads * head_dim * 4;
  const int64_t home = (size - 1) * rows * (heads * head_dim + heads) * 4;
  EXPECT_EQ(ringed.expected().ring_bytes, ring);
  EXPECT_EQ(ringed.expected().all_to_all_bytes, home);
  EXPECT_EQ(comm->traffic().bytes - before, ring + home);
}

TEST(Traffic, BroadcastQSendsQueriesToHoldersAlone) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  ringed.add(1, 20), ringed.add(2, 20);
  ringed.pass({{1, 0, 1, 0}, {2, 0, 12}}, Ring::pass_kv);  // 1 on rank 0 alone, 2 on several
  int holders = 0;
  for (int rank = 0; rank < size; ++rank)
    holders += parallel::num_rows({{2, 0, 12}}, size, rank) > 0 ? 1 : 0;
  const int64_t before = comm->traffic().bytes;
  ringed.pass({{1, 1, 1, 0}, {2, 12, 1, 0}}, Ring::broadcast_q);
  // Both new rows are rank 0's: the first stays, the second goes to the other holders of 2.
  const bool root = comm->rank() == 0;
  const bool holds = parallel::num_rows({{2, 0, 12}}, size, comm->rank()) > 0;
  const int64_t row = heads * head_dim * 4, home = (heads * head_dim + heads) * 4;
  EXPECT_EQ(ringed.expected().ring_bytes, root ? (holders - 1) * row : 0);
  EXPECT_EQ(ringed.expected().all_to_all_bytes, !root && holds ? home : 0);
  EXPECT_EQ(comm->traffic().bytes - before,
            ringed.expected().ring_bytes + ringed.expected().all_to_all_bytes);
}

TEST(Traffic, DecodeHasNoPaddingRows) {
  const auto comm = world();
  const int size = comm->size();
  Ringed ringed(*comm, 0);
  ringed.add(1, 20);
  ringed.pass({{1, 0, 5}}, Ring::pass_kv);
  const double before = comm->all_reduce_sum(static_cast<double>(comm->traffic().bytes));
  ringed.pass({{1, 5, 1, 0}}, Ring::pass_q);  // one row, on rank 0
  const double after = comm->all_reduce_sum(static_cast<double>(comm->traffic().bytes));
  EXPECT_EQ(after - before, (size - 1) * (heads * head_dim + heads * head_dim + heads) * 4);
}

}  // namespace
}  // namespace pecia::context
