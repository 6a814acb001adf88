/// Every way to spread a request over the ranks gives what one rank alone gives: each grid of
/// CP × SP × TP that uses all ranks, with every sharding and ring, for each kind of model that can
/// be cut so.

#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/comm/mpi_communicator.hpp"
#include "lib/model/config.hpp"
#include "lib/parallel/heads.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/replica.hpp"

namespace pecia::test {
namespace {

using parallel::Ring;
using parallel::Sharding;
using runtime::Finished;
using runtime::Request;
using Results = std::map<int64_t, Finished>;

constexpr double tolerance = 1e-4;  // the project's bound for another order of fp32 sums
constexpr int64_t vocab = 96;       // at least, of every checkpoint used here

struct Mode {
  std::string name;
  ReplicaSettings settings;
};

bool can_cut(const model::ModelConfig& config, int sp, int tp) {
  const auto heads = [&](int count) {
    return parallel::can_shard_heads(config.num_heads, config.num_kv_heads, count);
  };
  return heads(sp * tp) && heads(tp) && config.ffn % (sp * tp) == 0;
}

/// Every mode of every grid of `ranks` ranks that the model can be cut into.
std::vector<Mode> modes_of(const model::ModelConfig& config, int ranks) {
  std::vector<Mode> modes;
  for (int tp = 1; tp <= ranks; ++tp)
    for (int sp = 1; sp * tp <= ranks; ++sp) {
      if (ranks % (sp * tp) != 0 || !can_cut(config, sp, tp)) continue;
      const int cp = ranks / (sp * tp);
      std::vector<std::pair<std::string, parallel::PassModes>> found;
      found.push_back({"base", {}});
      if (tp > 1) found.push_back({"sp_tp", {.prefill = Sharding::sp_tp}});
      if (tp > 1) found.push_back({"gathered", {.prefill = Sharding::gathered}});
      if (tp > 1)
        found.push_back(
            {"sp_tp in decode too", {.prefill = Sharding::sp_tp, .decode = Sharding::sp_tp}});
      if (sp > 1) found.push_back({"shift", {.decode = Sharding::shift}});
      if (sp > 1) found.push_back({"shift by threshold", {.shift_threshold = 6}});
      if (cp > 1) found.push_back({"broadcast_q", {.decode_ring = Ring::broadcast_q}});
      for (const auto& [name, passes] : found) {
        Mode mode{fmt::format("CP {} × SP {} × TP {}, {}", cp, sp, tp, name), {}};
        mode.settings.sp = sp;
        mode.settings.tp = tp;
        mode.settings.modes = passes;
        modes.push_back(mode);
      }
    }
  return modes;
}

/// Lengths around where rings and blocks cut them, finishing at different times; a chain and a fork
/// whose turns see cached tokens. A function of the seed.
std::vector<Request> requests_for(int ranks, uint64_t seed) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {1, 2, 2 * ranks - 1, 2 * ranks + 1, 37, 150}) {
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, seed + static_cast<uint64_t>(row)),
                       static_cast<int32_t>(3 + row % 3 * 4)));
    ++row;
  }
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork}) {
    Request request;
    request.followup = followup;
    for (const int64_t length : {40, 3, 9})
      request.turns.push_back(
          greedy_request(row, random_tokens(length, vocab, seed + static_cast<uint64_t>(row)), 5)
              .turns.front()),
          ++row;
    if (followup == io::Followup::fork) request.turns.front().max_new_tokens = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(PECIA_GOLDENS) / name;
}

void expect_same(const Results& found, const Results& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [row, want] : wanted) {
    SCOPED_TRACE(fmt::format("row {}", row));
    ASSERT_TRUE(found.contains(row));
    const Finished& got = found.at(row);
    ASSERT_EQ(got.state, want.state) << got.result.error;
    EXPECT_EQ(got.result.tokens, want.result.tokens);
    EXPECT_TRUE(all_close(got.result.token_logprobs, want.result.token_logprobs, tolerance));
    EXPECT_TRUE(all_close(got.result.top_logprobs, want.result.top_logprobs, tolerance));
    EXPECT_TRUE(all_close(got.result.prompt_logprobs, want.result.prompt_logprobs, tolerance));
  }
}

bool near_tie(const Results& results, int logprobs) {
  for (const auto& [row, finished] : results) {
    const std::vector<float>& top = finished.result.top_logprobs;
    for (size_t i = 0; i < top.size(); i += static_cast<size_t>(logprobs))
      if (top[i] - top[i + 1] <= 2 * tolerance) return true;
  }
  return false;
}

struct EveryModel : testing::TestWithParam<std::string> {};

TEST_P(EveryModel, AnswersInEveryModeAsOneRank) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const auto alone = comm::make_null_communicator();
  ReplicaSettings settings;
  settings.logprobs = 3;
  settings.prompt_logprobs = 1;
  std::vector<Request> requests;
  Results wanted;
  uint64_t seed = 0;
  do {  // until no greedy choice hangs on the order of a sum
    requests = requests_for(world->size(), seed += 100);
    wanted = run_requests(*alone, golden(GetParam()), requests, settings);
  } while (near_tie(wanted, settings.logprobs));
  for (const Mode& mode : modes_of(model::read_config(golden(GetParam())), world->size()))
    for (const int64_t max_batch_tokens : {4096, 23}) {
      SCOPED_TRACE(fmt::format("{}, {} tokens a pass", mode.name, max_batch_tokens));
      ReplicaSettings in_mode = mode.settings;
      in_mode.logprobs = settings.logprobs;
      in_mode.prompt_logprobs = settings.prompt_logprobs;
      in_mode.max_batch_tokens = max_batch_tokens;
      in_mode.max_sequences = max_batch_tokens == 23 ? 4 : 64;
      expect_same(run_requests(*world, golden(GetParam()), requests, in_mode), wanted);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, EveryModel,
                         testing::Values("llama-gqa-fp32", "llama-mha-tied", "llama-mqa",
                                         "llama-biases", "qwen2-biases", "qwen3-qknorm-tied",
                                         "mistral-window16", "internlm2-dynamic-bias",
                                         "glm-partial-rope"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pecia::test
