// SPDX-License-Identifier: Apache-2.0
/// Stages of layers give what one rank alone gives: every number of stages that the layers allow, with
/// every grid of CP × SP × TP inside them that uses all ranks. With `reproducible: layout` the bits are
/// the same.

#include <gtest/gtest.h>
#include <mpi.h>

#include <array>

#include "lib/model/config/stage.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_answers.hpp"
#include "tests/support/same_bits.hpp"
#include "tests/support/two_servers.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using parallel::AttentionExchange;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;  // at least, of every checkpoint used here

bool may_have_stages(const model::ModelConfig& config, int stages) {
  try {
    model::layers_of_stages(config, stages);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Every number of stages above 1 that divides the ranks, with every legal pair of modes on every grid
/// of a stage, and policies, rings and sizes of passes in turn.
std::vector<ModeVariant> variants_of(const model::ModelConfig& config, int ranks, bool layout) {
  std::vector<ModeVariant> variants;
  for (int stages = 2; stages <= ranks; ++stages) {
    if (ranks % stages != 0 || !may_have_stages(config, stages)) continue;
    const auto reproducible = layout ? parallel::Reproducible::layout : parallel::Reproducible::run;
    for (const parallel::ModePair& pair :
         parallel::legal_modes(ranks / stages, resources::shape_of(config), reproducible)) {
      const size_t number = variants.size();
      const bool chunked = number % 2 == 1 && !layout;
      const AttentionExchange ring = number % 3 == 1 && pair.degrees.cp > 1 && !layout
                                         ? AttentionExchange::pass_q
                                         : AttentionExchange::pass_kv;
      ModeVariant variant{
          fmt::format("PP {} × {}, {} + {}, {}, {}", stages, to_string(pair.degrees),
                      parallel::name_of(pair.prefill), parallel::name_of(pair.decode),
                      parallel::name_of(ring), chunked ? "chunked" : "prefill first"),
          {}};
      ReplicaSettings& settings = variant.settings;
      settings.stages = stages;
      set_modes(settings, pair);
      settings.ring = ring;
      if (chunked) settings.policy = job::Policy::chunked;
      settings.max_batch_tokens = number % 4 < 2 ? 23 : 4096;
      settings.max_sequences = number % 4 < 2 ? 4 : 64;
      if (number % 3 == 0 && !layout) settings.places = two_servers(ranks);
      variants.push_back(std::move(variant));
    }
  }
  return variants;
}

/// Lengths around where passes are cut.
std::vector<Request> requests_of(uint64_t seed) {
  return ragged_requests(std::array<int64_t, 5>{1, 2, 7, 37, 150}, vocab, seed);
}

struct Stages : testing::TestWithParam<std::string> {
  const std::unique_ptr<comm::Communicator> world =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden(GetParam());
  const model::ModelConfig config = model::read_config(model);

  /// Two of a family that does not take every mode, on two to four ranks.
  std::vector<ModeVariant> variants(bool layout) const {
    const std::vector<ModeVariant> all = variants_of(config, world->size(), layout);
    if (takes_every_mode(GetParam()) || all.size() <= 2) return all;
    const size_t number = number_of(GetParam());
    return {all[number % all.size()], all[(number + all.size() / 2) % all.size()]};
  }
};

TEST_P(Stages, AnswerAsOneRank) {
  std::vector<ModeVariant> variants = this->variants(false);
  if (variants.empty()) GTEST_SKIP() << "its layers do not allow such stages";
  ReplicaSettings settings;
  settings.logprobs = 3;
  settings.prompt_logprobs = 1;
  std::vector<Request> requests;
  Results wanted;
  uint64_t seed = 0;
  do {  // until no greedy choice hangs on the order of a sum
    requests = requests_of(seed += 100);
    wanted = run_alone(*world, model, requests, settings);
  } while (near_tie(wanted, settings.logprobs));
  for (ModeVariant& variant : variants) {
    SCOPED_TRACE(variant.name);
    variant.settings.logprobs = settings.logprobs;
    variant.settings.prompt_logprobs = settings.prompt_logprobs;
    expect_same_answers(run_requests(*world, model, requests, variant.settings), wanted);
  }
}

TEST_P(Stages, GiveTheSameBitsWithLayout) {
  std::vector<ModeVariant> variants = this->variants(true);
  if (variants.empty()) GTEST_SKIP() << "its layers do not allow such stages";
  const std::vector<Request> requests = requests_of(7);
  std::map<int64_t, Results> wanted;  // by tokens of a pass
  for (ModeVariant& variant : variants) {
    SCOPED_TRACE(variant.name);
    ReplicaSettings& settings = variant.settings;
    settings.layout_invariant = true;
    settings.logprobs = settings.prompt_logprobs = -1;
    settings.max_batch_tokens = settings.max_batch_tokens == 23 ? 48 : 4096;
    Results& alone = wanted[settings.max_batch_tokens];
    if (alone.empty()) {
      ReplicaSettings of_one = settings;
      of_one.stages = of_one.sp = of_one.tp = of_one.ep = 1;
      of_one.modes = {};
      of_one.places.clear();
      alone = run_one_by_one(*world, model, requests, of_one);
    }
    expect_same_bits(run_requests(*world, model, requests, settings), alone);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Stages,
    testing::Values("llama-gqa-fp32", "llama-mha-tied", "llama-biases", "qwen3-qknorm-tied",
                    "mistral-window16", "granite-multipliers", "phi3-longrope", "olmo2-postnorm",
                    "olmo3-window-yarn", "gemma3-windows", "qwen3moe-norm-dense", "gptoss-bf16",
                    "gptoss-mxfp4", "afmoe-gates", "deepseek3-groups", "mistral4-temperature",
                    "llama4-chunks", "qwen2moe-shared-gate", "gemma4-keys-as-values",
                    "gemma4-shared-keys", "gemma4-mixture", "qwen3next-delta", "qwen35-tied",
                    "granitehybrid-experts", "nemotronh-blocks"),
    name_of_model);

}  // namespace
}  // namespace pecia::test
