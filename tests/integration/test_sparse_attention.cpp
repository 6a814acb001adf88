// SPDX-License-Identifier: Apache-2.0
/// Whole models whose prompts are attended by levels. Where nothing is dropped, the answers are one
/// rank's; where tokens are, every run gives the same bits, and no request disturbs another.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <set>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/deep_model.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_answers.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using parallel::AttentionExchange;
using parallel::Geometry;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;        // at least, of every checkpoint used here
constexpr int64_t levels_from = 24;  // shorter prompts and turns go round the ring
constexpr int64_t max_batch_tokens = 250;

/// Ragged prompts, the longest in two chunks; a chain and a fork whose turns see cached tokens, some
/// of them too short for levels. A function of the seed.
std::vector<Request> make_requests(uint64_t seed) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {5, 67, 131, 333}) {
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, seed + static_cast<uint64_t>(row)),
                       static_cast<int32_t>(1 + row % 3)));
    ++row;
  }
  const int64_t of_chain[] = {90, 41, 3, 62}, of_fork[] = {120, 30, 2, 55};
  requests.push_back(greedy_turns(io::Followup::chain, row, of_chain, vocab, seed, 3));
  requests.push_back(greedy_turns(io::Followup::fork, row, of_fork, vocab, seed, 3));
  return requests;
}

struct Place {
  int per_server, per_rack;  ///< parts
  std::optional<int> levels;
};

struct Variant {
  std::string name;
  int levels = 0;
  ReplicaSettings settings;
};

/// Whether levels attend prompts in these modes. The ranks of SP would count as those of CP.
bool goes_by_levels(const parallel::ModePair& pair) {
  using P = parallel::PrefillMode;
  const auto& [cp, sp, tp, ep] = pair.degrees;
  if (sp > 1 || cp * tp == 1) return false;
  return cp == 1 || pair.prefill == P::ring || pair.prefill == P::sp_tp;
}

/// Each pair of modes on each grid of CP × TP, with places that give two, three and four levels, in
/// one piece and, where tokens travel, in three.
std::vector<Variant> variants_of(const model::ModelConfig& config, int ranks) {
  std::vector<Variant> variants;
  for (const parallel::ModePair& pair : parallel::legal_modes(ranks, resources::shape_of(config))) {
    const auto& [cp, sp, tp, ep] = pair.degrees;
    if (!goes_by_levels(pair)) continue;
    const int of_part = cp > 1 ? tp : 1;  // ranks
    std::set<int> counts;
    for (const auto& [per_server, per_rack, levels] :
         {Place{8, 8, {}}, Place{2, 8, {}}, Place{2, 4, {}}, Place{8, 8, 4}}) {
      std::vector<comm::RackServerGpu> of_parts, of_ranks;
      for (int rank = 0; rank < ranks; ++rank) {
        const int part = rank / of_part;
        of_ranks.push_back(
            {std::to_string(part / per_rack), std::to_string(part / per_server), rank});
        if (rank % of_part == 0) of_parts.push_back(of_ranks.back());
      }
      const int count =
          parallel::levels_of(comm::server_of_rank(of_parts), comm::rack_of_rank(of_parts), levels)
              .count();
      if (!counts.insert(count).second) continue;
      for (const auto& micros :
           {std::optional<parallel::Micros>(), std::optional(parallel::Micros{3})}) {
        if (micros && cp == 1) continue;
        Variant variant{fmt::format("{}, {}+{}, {} levels in {}", to_string(pair.degrees),
                                    parallel::name_of(pair.prefill), parallel::name_of(pair.decode),
                                    count, micros ? micros->front() : 1),
                        count,
                        {}};
        variant.settings.tp = tp;
        variant.settings.ep = ep;
        variant.settings.modes = parallel::pass_modes(pair, {});
        variant.settings.places = of_ranks;
        variant.settings.max_batch_tokens = max_batch_tokens;
        variant.settings.levels_from = levels_from;
        variant.settings.sparse = {{Geometry::disjoint, 0}, levels, micros};
        variants.push_back(std::move(variant));
      }
    }
  }
  return variants;
}

/// Passes by levels, and those among them that see cached tokens.
struct Seen {
  int by_levels = 0, after_cached = 0, together = 0;

  void operator()(const schedule::Plan& plan) {
    if (plan.teams.front().ring != AttentionExchange::levels) return;
    ++by_levels;
    together += plan.items.size() > 1;
    for (const schedule::PlanItem& item : plan.items) after_cached += item.rows.first > 0;
  }
};

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
}

/// The variants [begin, end) of those that there are, as shares of their number; at least one.
void expect_answers_of_one_rank(const std::string& model, double begin, double end) {
  const auto all = world();
  ReplicaSettings alone;
  alone.max_batch_tokens = max_batch_tokens;
  alone.logprobs = 3;
  alone.prompt_logprobs = 1;
  std::vector<Request> requests;
  Results wanted;
  uint64_t seed = 0;
  do {  // until no greedy choice hangs on the order of a sum
    requests = make_requests(seed += 100);
    wanted = run_alone(*all, golden(model), requests, alone);
  } while (near_tie(wanted, alone.logprobs));
  std::vector<Variant> variants = variants_of(model::read_config(golden(model)), all->size());
  ASSERT_FALSE(variants.empty());
  const auto number = [&](double share) {
    return static_cast<size_t>(share * static_cast<double>(variants.size()));
  };
  for (size_t i = number(begin); i < std::max(number(end), number(begin) + 1); ++i) {
    ReplicaSettings& settings = variants[i].settings;
    SCOPED_TRACE(variants[i].name);
    settings.logprobs = alone.logprobs;
    settings.prompt_logprobs = alone.prompt_logprobs;
    Seen seen;
    settings.on_plan = [&](const schedule::Plan& plan) { seen(plan); };
    expect_same_answers(run_requests(*all, golden(model), requests, settings), wanted);
    EXPECT_GT(seen.by_levels, 5);
    EXPECT_GT(seen.after_cached, 3);
    EXPECT_GT(seen.together, 0);
  }
}

/// Latents, and keys that differ from layer to layer, are refused with levels.
bool takes_levels(const model::ModelConfig& config) {
  return !config.latent && !config.full_heads && config.sharing_layers == 0;
}

/// All golden checkpoints that take levels, sorted.
std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(goldens_folder()))
    if (std::filesystem::exists(entry.path() / "golden.json") &&
        takes_levels(model::read_config(entry.path())))
      names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

struct EveryModel : testing::TestWithParam<std::string> {};

/// Each model has another variant.
TEST_P(EveryModel, AnswersByLevelsAsOneRank) {
  if (world()->size() > 2 && !takes_every_mode(GetParam()))
    GTEST_SKIP() << "other families have these modes";
  const std::vector<std::string> all = models();
  const auto number = std::ranges::find(all, GetParam()) - all.begin();
  const double share = static_cast<double>(number) / static_cast<double>(all.size());
  expect_answers_of_one_rank(GetParam(), share, share);
}

INSTANTIATE_TEST_SUITE_P(Families, EveryModel, testing::ValuesIn(models()), name_of_model);

TEST(Levels, AnswerInEveryPlaceAsOneRank) {
  expect_answers_of_one_rank("llama-gqa-fp32", 0, 1);
}

TEST(Levels, AreAsManyAsPlacesGive) {
  const int ranks = world()->size();
  std::set<int> found;
  for (const Variant& variant : variants_of(model::read_config(golden("llama-gqa-fp32")), ranks))
    found.insert(variant.levels);
  const std::set<int> wanted = ranks == 2  ? std::set{2}
                               : ranks < 5 ? std::set{2, 3}
                                           : std::set{2, 3, 4};
  EXPECT_EQ(found, wanted);
}

/// A model of five layers, of which the middle three drop.
struct Dropped {
  explicit Dropped(const std::string& golden, const ChangeTensor& change = {}) {
    write_deep_model(golden, 5, folder, change);
  }

  Results run(const std::vector<Request>& requests, ReplicaSettings settings) const {
    settings.logprobs = 3;
    settings.prompt_logprobs = 1;
    return run_requests(*all, folder.path(), requests, settings);
  }

  TempFolder folder;
  std::unique_ptr<comm::Communicator> all = world();
};

bool differ(const Results& a, const Results& b) {
  for (const auto& [row, finished] : a)
    if (!same_bits(finished.result.prompt_logprobs, b.at(row).result.prompt_logprobs)) return true;
  return false;
}

TEST(Dropping, GivesTheSameBitsInEveryRun) {
  const std::vector<Request> requests = make_requests(7);
  for (const char* model : {"llama-gqa-fp32", "qwen2-window-upper-layer"}) {
    const Dropped dropped(model);
    const std::vector<Variant> variants =
        variants_of(model::read_config(dropped.folder.path()), dropped.all->size());
    for (size_t i = 0; i < variants.size(); i += (variants.size() + 2) / 3) {
      for (const Geometry geometry : {Geometry::disjoint, Geometry::nested}) {
        SCOPED_TRACE(fmt::format("{}, {}, geometry {}", model, variants[i].name,
                                 static_cast<int>(geometry)));
        ReplicaSettings settings = variants[i].settings;
        settings.sparse->rule = {geometry, 0};
        const Results dense = dropped.run(requests, settings);
        settings.sparse->rule.drop = 0.6;
        const Results found = dropped.run(requests, settings);
        expect_same_bits(dropped.run(requests, settings), found);
        EXPECT_TRUE(differ(found, dense)) << "nothing was dropped";
      }
    }
  }
}

/// Prompts of one pass, whose parts are those of ranks that share tokens.
TEST(Dropping, KeepsTheSameTokensWhereRanksShareHeadsAsWhereTheyShareTokens) {
  const int ranks = world()->size();
  const Dropped dropped(ranks % 3 == 0 ? "llama-mha-tied" : "llama-gqa-fp32");
  std::vector<Variant> of_tokens, of_heads;
  for (Variant& variant : variants_of(model::read_config(dropped.folder.path()), ranks)) {
    if (variant.settings.sparse->micros) continue;
    if (variant.settings.tp == ranks) of_heads.push_back(variant);
    if (variant.settings.tp == 1) of_tokens.push_back(variant);
  }
  ASSERT_FALSE(of_heads.empty());
  std::vector<Request> requests;
  for (const int64_t length : {100 * ranks + 31, 67, 300})
    requests.push_back(greedy_request(std::ssize(requests), random_tokens(length, vocab, 3), 3));
  for (const Geometry geometry : {Geometry::disjoint, Geometry::nested})
    for (const double drop : {0.1, 0.6})
      for (const Variant& heads : of_heads) {
        const auto tokens = std::ranges::find(of_tokens, heads.levels, &Variant::levels);
        SCOPED_TRACE(
            fmt::format("{}, geometry {}, drop {}", heads.name, static_cast<int>(geometry), drop));
        const auto run = [&](ReplicaSettings settings, double share) {
          settings.max_batch_tokens = 2000;
          settings.sparse->rule = {geometry, share};
          return dropped.run(requests, settings);
        };
        const Results found = run(heads.settings, drop);
        expect_same_answers(found, run(tokens->settings, drop));
        EXPECT_TRUE(differ(found, run(heads.settings, 0))) << "nothing was dropped";
      }
}

constexpr int32_t bad_token = vocab - 1;

/// The FFN of each layer overflows for one token: dimension 0 of the hidden states, to which no
/// layer adds anything, tells it from the others, and gate and up see nothing else in one column.
void overflow(const std::string& name, std::span<float> values) {
  constexpr int64_t hidden = 32;
  const auto ends = [&](const char* text) { return name.ends_with(text); };
  if (ends("embed_tokens.weight"))
    for (int64_t token = 0; token < vocab; ++token)
      values[token * hidden] = token == bad_token ? 4.0f : 0.0f;
  if (ends("o_proj.weight") || ends("down_proj.weight"))
    std::fill_n(values.begin(), std::ssize(values) / hidden, 0.0f);
  if (ends("gate_proj.weight") || ends("up_proj.weight")) {
    std::fill_n(values.begin(), hidden, 0.0f);
    values[0] = 1e30f;
  }
}

TEST(Dropping, OfASequenceOfNaNHarmsNoOther) {
  const Dropped dropped("llama-gqa-fp32", overflow);
  for (const Variant& variant :
       variants_of(model::read_config(dropped.folder.path()), dropped.all->size())) {
    const int tp = variant.settings.tp;
    if (variant.settings.sparse->micros || (tp > 1 && tp < dropped.all->size())) continue;
    for (const Geometry geometry : {Geometry::disjoint, Geometry::nested}) {
      SCOPED_TRACE(fmt::format("{}, geometry {}", variant.name, static_cast<int>(geometry)));
      ReplicaSettings settings = variant.settings;
      settings.sparse->rule = {geometry, 0.6};
      Seen seen;
      settings.on_plan = [&](const schedule::Plan& plan) { seen(plan); };
      const auto run = [&](int32_t token) {
        std::vector<Request> requests;
        for (int64_t row = 0; row < 3; ++row) {
          auto tokens = random_tokens(60 + row, vocab - 1, static_cast<uint64_t>(row));
          if (row == 1) tokens[20] = token;  // most rows see it
          requests.push_back(greedy_request(row, std::move(tokens), 1));
        }
        return dropped.run(requests, settings);
      };
      Results good = run(5), found = run(bad_token);
      EXPECT_EQ(seen.by_levels, 2) << "all requests in one pass";
      EXPECT_EQ(found.at(1).state, io::TurnState::failed);
      // It overflows at one token, whose row gives a log-probability of the prompt.
      EXPECT_NE(found.at(1).result.error.find("came from the FFN of layer 0"), std::string::npos)
          << found.at(1).result.error;
      good.erase(1), found.erase(1);
      expect_same_bits(found, good);
    }
  }
}

}  // namespace
}  // namespace pecia::test
