// SPDX-License-Identifier: Apache-2.0
/// Memory on demand changes no bit of an answer: sequences that yield and come back, and sequences that
/// grow, give what they give where all memory is reserved.

#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <filesystem>

#include "lib/model/attention/recent_slots.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using batch::Request;

constexpr int64_t vocab = 96, window = 16;  // of every checkpoint used here

/// Prompts and answers of several lengths, chains and forks.
std::vector<Request> ragged(int64_t first_turn = 50) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {3, 40, 90}) {
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, 100 + static_cast<uint64_t>(row)), 25));
    ++row;
  }
  const std::array<int64_t, 3> lengths = {first_turn, 7, 20};
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork})
    requests.push_back(greedy_turns(followup, row, lengths, vocab, 7, 17));
  return requests;
}

struct DemandBits : testing::TestWithParam<std::tuple<const char*, DType>> {
  std::unique_ptr<comm::Communicator> all =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  std::filesystem::path model = golden(std::get<0>(GetParam()));
  TempFolder folder;

  ReplicaSettings settings() const {
    ReplicaSettings settings;
    settings.kv_dtype = std::get<1>(GetParam());
    settings.max_batch_tokens = 64;
    settings.logprobs = -1;
    settings.block = 8;
    return settings;
  }

  /// Slots on each rank for the largest request.
  int64_t least_memory(const ReplicaSettings& settings) const {
    schedule::SchedulerLimits limits;
    limits.layout_invariant = settings.layout_invariant;
    limits.ring_size = all->size() / settings.sp / settings.tp;
    limits.max_batch_tokens = settings.max_batch_tokens;
    int64_t least = 0;
    for (const Request& request : ragged())
      least = std::max(least, schedule::Scheduler(limits).tokens_needed(request));
    return least;
  }

  /// With as much memory as the largest request needs, and with enough for all but yields that are
  /// forced; parked in memory and in files, and forgotten.
  void expect_same(ReplicaSettings settings) const {
    settings.admission = job::KvAdmission::reserve;
    const auto wanted = run_requests(*all, model, ragged(), settings);
    settings.admission = job::KvAdmission::demand;
    const int64_t least = least_memory(settings);
    schedule::DemandCounts counts;
    settings.demand = &counts;
    const auto run = [&](const char* what) {
      SCOPED_TRACE(what);
      expect_same_bits(run_requests(*all, model, ragged(), settings), wanted);
      EXPECT_EQ(counts.parked > 0, settings.parking_tokens > 0);
      EXPECT_EQ(counts.parked_tokens, counts.returned_tokens);
      EXPECT_EQ(counts.forgotten > 0, settings.parking_tokens == 0);
      EXPECT_EQ(counts.reread_tokens > 0, settings.parking_tokens == 0);
    };
    settings.kv_tokens = least;
    run("the least memory");
    settings.parking = {0, folder / "kv"};
    run("files");
    settings.kv_tokens = 0;
    settings.forced_yields = 5;
    run("forced");
    settings.parking_tokens = 0;
    run("forced to forget");
    settings.kv_tokens = least;
    settings.forced_yields = {};
    run("forgotten");
  }
};

TEST_P(DemandBits, WhateverTheRanks) {
  for (const int tp : {1, 2}) {
    if (all->size() % tp != 0) continue;
    ReplicaSettings settings = this->settings();
    settings.layout_invariant = true;
    settings.tp = tp;
    expect_same(settings);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DemandBits,
                         testing::Combine(testing::Values("llama-gqa-fp32", "qwen3-qknorm-tied"),
                                          testing::Values(DType::bf16, DType::fp8)));

/// Layers that keep recent tokens, with prompts longer than those.
TEST(DemandBitsOfWindows, WhereRecentTokensAreKept) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const auto requests = ragged(400);
  const auto model = golden("mistral-window16");
  ReplicaSettings settings;
  settings.max_batch_tokens = 64;
  settings.max_sequences = 8;
  settings.block = 8;
  settings.kv_recent_tokens = attention::RecentSlots::enough(
      window + attention::RecentSlots::margin, 16, settings.max_batch_tokens + 16);
  settings.admission = job::KvAdmission::reserve;
  const auto wanted = run_requests(*all, model, requests, settings);
  settings.admission = job::KvAdmission::demand;
  schedule::DemandCounts counts;
  settings.demand = &counts;
  settings.forced_yields = 5;
  const auto found = run_requests(*all, model, requests, settings);
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [row, finished] : wanted)
    EXPECT_EQ(found.at(row).result.tokens, finished.result.tokens) << "row " << row;
  EXPECT_GT(counts.parked, 0);
}

}  // namespace
}  // namespace pecia::test
