// SPDX-License-Identifier: Apache-2.0
/// Attention of N ranks against that of one, bit by bit, and what travels against the formulas.

#include <gtest/gtest.h>
#include <mpi.h>

#include <bit>
#include <cmath>

#include "lib/model/attention/attention.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "tests/attention/groups.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/ring_formulas.hpp"

namespace pecia::attention {
namespace {

using parallel::AttentionExchange;
using parallel::layout_ranks;
using parallel::PassSequence;

constexpr int64_t heads = 4, kv_heads = 2, capacity = 8000;
constexpr int64_t head_dim = 20;  // whole vectors and a remainder

/// Output bits by (sequence, position).
using Bits = std::map<std::pair<int64_t, int64_t>, std::vector<uint32_t>>;

/// Vector of a token: a function of its kind, sequence and position, so any rank can make any
/// rank's.
std::vector<float> vector_of(uint64_t kind, int64_t sequence, int64_t position, int64_t count) {
  return test::random_floats(
      count, kind * 1'000'003 + static_cast<uint64_t>(sequence * 65'537 + position));
}

/// The rows of one rank of a ring, pass after pass.
class Player {
 public:
  Player(comm::Communicator& comm, kernels::Window window)
      : comm_(comm),
        cache_({1, kv_heads, head_dim, DType::bf16}, capacity, *compute_.device),
        attention_(groups_, {heads, kv_heads}, {window}, compute_, cache_,
                   kernels::RowInvariant::yes) {}

  void add(int64_t sequence, int64_t reserved, std::optional<int64_t> parent = {}) {
    attention_.ledger().add(
        sequence, std::vector<int64_t>(comm_.size(), layout_ranks / comm_.size() * reserved),
        parent);
  }
  int64_t length(int64_t sequence) const { return attention_.ledger().map().length(sequence); }

  void begin(const std::vector<parallel::TeamPass>& teams) { attention_.begin_pass(teams, 0); }

  Bits pass(const std::vector<PassSequence>& pass, AttentionExchange ring) {
    const std::vector<parallel::TeamPass> teams{{parallel::team_of_all(comm_.size(), ring), pass}};
    const int64_t before = comm_.traffic().bytes;
    attention_.begin_pass(teams, 0);
    std::vector<std::pair<int64_t, int64_t>> rows;
    std::vector<float> q, k, v;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const PassSequence& sequence : pass)
      for (const auto& range : rows_of(sequence, comm_.size(), comm_.rank()))
        for (int64_t position = range.begin; position < range.end; ++position) {
          rows.emplace_back(sequence.sequence, position);
          append(q, vector_of(1, sequence.sequence, position, heads * head_dim));
          append(k, vector_of(2, sequence.sequence, position, kv_heads * head_dim));
          append(v, vector_of(3, sequence.sequence, position, kv_heads * head_dim));
        }
    std::vector<float> out(q.size(), NAN);
    const auto view = [&](std::vector<float>& data, int64_t count) {
      return TensorView(static_cast<void*>(data.data()), DType::fp32,
                        {static_cast<int64_t>(rows.size()), count, head_dim});
    };
    attention_.start_keys(view(k, kv_heads), view(v, kv_heads));
    attention_.run(0, view(q, heads), view(out, heads));
    EXPECT_EQ(comm_.traffic().bytes - before,
              test::ring_bytes(
                  teams, attention_.ledger().map(), comm_.rank(),
                  {heads, kv_heads, head_dim, cache_.shape().layer_bytes_per_token(), true}));
    Bits bits;
    for (size_t row = 0; row < rows.size(); ++row)
      for (int64_t i = 0; i < heads * head_dim; ++i)
        bits[rows[row]].push_back(
            std::bit_cast<uint32_t>(out[row * heads * head_dim + static_cast<size_t>(i)]));
    return bits;
  }

 private:
  comm::Communicator& comm_;
  test::CpuCompute compute_;
  KvCache cache_;
  ReplicaGroups groups_ = ring_groups(comm_);
  Attention attention_;
};

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

PassSequence prompt(int64_t sequence, int64_t first, int64_t count) {
  return {sequence, first, count, PassSequence::balanced, layout_ranks};
}

PassSequence generated(int64_t sequence, int64_t position) {
  return {sequence, position, 1, parallel::generated_owner(position, sequence), layout_ranks};
}

struct EveryWindow : testing::TestWithParam<kernels::Window> {};

TEST_P(EveryWindow, GivesOneRanksBits) {
  const auto comm = world(), alone = comm::make_null_communicator();
  for (const AttentionExchange ring : {AttentionExchange::pass_kv, AttentionExchange::pass_q}) {
    Player ours(*comm, GetParam()), one(*alone, GetParam());
    const auto check = [&](const std::vector<PassSequence>& pass) {
      const Bits wanted = one.pass(pass, ring);
      for (const auto& [row, bits] : ours.pass(pass, ring))
        ASSERT_EQ(bits, wanted.at(row)) << "sequence " << row.first << ", position " << row.second;
    };
    const std::vector<int64_t> lengths{1, 2, 15, 16, 17, 90, 700};
    std::vector<PassSequence> prompts, chunks;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto sequence = static_cast<int64_t>(i);
      for (Player* player : {&ours, &one}) player->add(sequence, 120);
      prompts.push_back(prompt(sequence, 0, lengths[i]));
      chunks.push_back(prompt(sequence, lengths[i], sequence + 1));
    }
    check(prompts);
    check(chunks);
    for (int step = 0; step < layout_ranks + 3; ++step) {
      std::vector<PassSequence> decode;
      for (size_t i = 0; i < lengths.size(); ++i)
        decode.push_back(generated(static_cast<int64_t>(i), one.length(static_cast<int64_t>(i))));
      check(decode);
    }
    for (Player* player : {&ours, &one}) player->add(20, 10, 6), player->add(21, 10, 6);
    const int64_t begin = one.length(6);
    check({prompt(20, begin, 9), prompt(21, begin, 1)});
    check({generated(20, begin + 9), generated(21, begin + 1)});
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, EveryWindow,
                         testing::Values(kernels::Window(), kernels::Window(1), kernels::Window(40),
                                         kernels::Window::chunks_of(40)));

TEST(InvariantAttention, WorksAsOneTeamOfAllInstances) {
  const auto comm = world();
  const int size = comm->size();
  Player player(*comm, 0);
  player.add(1, 20);
  parallel::Team turned = parallel::team_of_all(size);
  std::rotate(turned.instances.begin(), turned.instances.end() - 1, turned.instances.end());
  if (size > 1) {
    EXPECT_THROW(player.begin({{turned, {prompt(1, 0, 5)}}}), Unsupported);
    EXPECT_THROW(player.begin({{{{comm->rank()}}, {prompt(1, 0, 5)}}}), Unsupported);
  }
  player.begin({{parallel::team_of_all(size), {prompt(1, 0, 5)}}});
  EXPECT_EQ(player.length(1), 5);
}

TEST(InvariantTraffic, IsTheFormulas) {
  const auto comm = world();
  const int size = comm->size();
  Player player(*comm, 0);
  player.add(1, 20), player.add(2, 20);
  const std::vector<PassSequence> passes[] = {{prompt(1, 0, 41), prompt(2, 0, 3)},
                                              {generated(1, 41), generated(2, 3)}};
  for (const auto& pass : passes)
    for (const AttentionExchange ring :
         {&pass == &passes[0] ? AttentionExchange::pass_kv : AttentionExchange::pass_q}) {
      const int64_t before = comm->traffic().bytes;
      player.pass(pass, ring);
      const int64_t sent = comm->traffic().bytes - before;
      if (ring != AttentionExchange::pass_kv) continue;
      // 41 tokens in 16 segments of 3: virtual rank 0 has 3, 1 has 3 + 3, …, the most is 6; 3 in
      // segments of one. Every rank sends what it plays, padded to the most.
      EXPECT_EQ(sent, (size - 1) * 2 * kv_heads * head_dim * 2 * (layout_ranks / size) * (6 + 1));
    }
}

}  // namespace
}  // namespace pecia::attention
