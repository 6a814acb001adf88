// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "lib/engine/schedule/scheduler.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/batch/joined_request.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::batch {
namespace {

using test::ShardContent;

model::ModelConfig small_model() {
  model::ModelConfig config;
  config.vocab = 100;
  config.hidden = 8, config.ffn = 16, config.layers = 2;
  config.num_heads = 2, config.num_kv_heads = 1, config.head_dim = 4;
  config.max_positions = 50;
  return config;
}

/// A job over shards that the test writes.
class Shards : public testing::Test {
 protected:
  Shards() {
    job_.model.path = folder_.path();
    job_.generation.max_new_tokens = 10;
  }
  /// A shard of the requests, with what `set` gives it beside them.
  void write(
      const std::string& name, const std::vector<test::ShardRequest>& requests,
      const std::function<void(ShardContent&)>& set = [](ShardContent&) {}) {
    ShardContent content;
    content.requests = requests;
    set(content);
    test::write_shard(folder_ / name, content);
    job_.input.push_back(folder_ / name);
  }
  Inputs inputs() const { return Inputs(job_, config_); }
  /// The request of that id as it is run.
  batch::Request load(const std::string& id) const {
    const Inputs all = inputs();
    for (const InputRequest& request : all.requests())
      if (all.prompt(request).id == id) return all.load(request);
    ADD_FAILURE() << "no request " << id;
    return {};
  }

  test::TempFolder folder_;
  job::Job job_;
  model::ModelConfig config_ = small_model();
};

TEST_F(Shards, AskForNoMoreLogProbabilitiesThanTheJobWrites) {
  write("a.h5", {{"one", {{{1}}}}, {"two", {{{2}}, {{3}}}}}, [](ShardContent& content) {
    content.logprobs = {-1, 2, 5};
  });
  job_.generation.logprobs = 4;
  test::expect_error<InputError>(
      [&] { inputs(); },
      {(folder_ / "a.h5").string() + ": request 'two', turn 2: /logprobs asks for 5",
       "the job writes 4", "generation.logprobs: 5"});
  for (const int32_t enough : {5, -1}) {
    job_.generation.logprobs = enough;
    EXPECT_NO_THROW(inputs());
  }
}

TEST_F(Shards, KnowWhichKeysOfTheJobATurnDependsOn) {
  write("a.h5", {{"one", {{test::ascending(45)}}}, {"two", {{{1}}}}}, [](ShardContent& content) {
    content.max_new_tokens = {-1, 3};
  });
  const Inputs all = inputs();
  for (const char* key : {"generation.max_new_tokens", "limits.over_length"}) {
    EXPECT_TRUE(all.depends_on(key, 0)) << key << ": 45 tokens and 10 are more than 50";
    EXPECT_FALSE(all.depends_on(key, 1)) << key;
  }
  EXPECT_TRUE(all.depends_on("model.rope_scaling", 1));
}

TEST_F(Shards, AreOneListOfRequestsAndRows) {
  write("a.h5", {{"a0", {{{1, 2}}, {{3}}}}, {"a1", {{{4}}}}});
  write("b.h5", {{"b0", {{{5}}, {{6, 7, 8}}}}},
        [](ShardContent& shard) { shard.followup = "fork"; });
  const Inputs all = inputs();
  EXPECT_EQ(all.num_turns(), 5);
  EXPECT_EQ(all.prompt_tokens(), 8);
  ASSERT_EQ(all.requests().size(), 3u);
  EXPECT_EQ(all.requests()[2].shard, 1);
  EXPECT_EQ(all.requests()[2].first_row, 3);
  EXPECT_EQ(all.followup(all.requests()[0]), io::Followup::chain);
  EXPECT_EQ(all.followup(all.requests()[2]), io::Followup::fork);

  const auto layout = all.layout();
  ASSERT_EQ(layout.turns.size(), 5u);
  EXPECT_EQ(layout.turns[1].request_id, "a0");
  EXPECT_EQ(layout.turns[1].turn, 1);
  EXPECT_EQ(layout.turns[1].slots, 10);
  EXPECT_EQ(layout.turns[3].slots, 0) << "a fork's first turn is only read";
  EXPECT_EQ(layout.turns[4].prompt_tokens, 3);
  EXPECT_EQ(layout.inputs.size(), 2u);

  const batch::Request loaded = all.load(all.requests()[2]);
  EXPECT_EQ(loaded.turns[1].row, 4);
  EXPECT_EQ(loaded.turns[1].tokens, (std::vector<int32_t>{6, 7, 8}));
  EXPECT_EQ(loaded.turns[1].refused, "");
}

TEST_F(Shards, GiveTheirTurnsOptionsOfTheirOwn) {
  job_.generation.sampling.top_k = 7;
  job_.generation.sampling.top_p = 0.5f;
  write("a.h5", {{"a", {{{1}}, {{2}}}}}, [](ShardContent& shard) {
    shard.max_new_tokens = {0, 3};
    shard.temperature = {0.25f, 1.5f};
  });
  const batch::Request request = load("a");
  EXPECT_EQ(request.turns[0].max_new_tokens, 0);
  EXPECT_EQ(request.turns[1].max_new_tokens, 3);
  EXPECT_EQ(request.turns[0].params.temperature, 0.25f);
  EXPECT_EQ(request.turns[1].params.temperature, 1.5f);
  EXPECT_EQ(request.turns[1].params.top_p, 0.5f);
  EXPECT_EQ(request.turns[1].params.top_k, 7);
}

TEST_F(Shards, AreTakenUpToALimitOfRequests) {
  write("a.h5", {{"a", {{{1}}, {{2}}}}, {"b", {{{3}}}}});
  write("b.h5", {{"c", {{{4}}}}, {"d", {{{5}}}}});
  for (const auto& [limit, requests, turns] :
       {std::tuple(1, 1, 2), {2, 2, 3}, {3, 3, 4}, {4, 4, 5}, {100, 4, 5}}) {
    job_.batch.limit = limit;
    const Inputs some = inputs();
    EXPECT_EQ(std::ssize(some.requests()), requests) << limit;
    EXPECT_EQ(some.num_turns(), turns) << limit;
    EXPECT_EQ(std::ssize(some.layout().turns), turns) << limit;
  }
}

TEST_F(Shards, GiveTheirTurnsSamplingOfTheirOwn) {
  job_.generation.sampling = {.temperature = 0.5f, .top_k = 7, .min_p = 0.1f};
  job_.generation.ignore_eos = true;
  write("a.h5", {{"a", {{{1}}, {{2}}, {{3}}}}}, [&](ShardContent& shard) {
    shard.top_k = {0, -1, 3};
    shard.min_p = {NAN, 0.25f, NAN};
    shard.repetition_penalty = {1.5f, NAN, NAN};
    shard.presence_penalty = {NAN, 2, NAN};
    shard.frequency_penalty = {NAN, -1, NAN};
    shard.ignore_eos = {0, -1, 1};
    shard.logit_bias_offsets = {0, 1, 1, 2};
    shard.logit_bias_tokens = {4, static_cast<int32_t>(config_.vocab)};
    shard.logit_bias = {-3, 1};
  });
  const batch::Request request = load("a");
  const auto& first = request.turns[0];
  const auto& second = request.turns[1];
  EXPECT_EQ(first.params.top_k, 0);
  EXPECT_EQ(second.params.top_k, 7);
  EXPECT_EQ(first.params.min_p, 0.1f);
  EXPECT_EQ(second.params.min_p, 0.25f);
  EXPECT_EQ(first.params.repetition_penalty, 1.5f);
  EXPECT_EQ(second.params.repetition_penalty, 1.0f);
  EXPECT_EQ(second.params.presence_penalty, 2.0f);
  EXPECT_EQ(second.params.frequency_penalty, -1.0f);
  EXPECT_FALSE(first.ignore_eos);
  EXPECT_TRUE(second.ignore_eos);
  EXPECT_EQ(first.bias, (std::vector<kernels::LogitBias>{{4, -3.0f}}));
  EXPECT_TRUE(second.bias.empty());
  EXPECT_EQ(first.refused, "");
  EXPECT_EQ(request.turns[2].refused.find("logit_bias names token"), 0u);
}

TEST_F(Shards, GiveTheirTurnsStopStringsOfTheirOwn) {
  job_.generation.stop = {"\n\n"};
  write("a.h5", {{"a", {{{1}}, {{2}}, {{3}}}}}, [](ShardContent& shard) {
    shard.stop = {R"(["x", "y"])", "", "[]"};
  });
  const batch::Request request = load("a");
  EXPECT_EQ(request.turns[0].stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request.turns[1].stop, std::vector<std::string>{"\n\n"});
  EXPECT_EQ(request.turns[2].stop, std::vector<std::string>{});
}

TEST_F(Shards, NeedATokenizerForStopStringsAlone) {
  const auto no_tokenizer = [&] {
    test::expect_error<InputError>([&] { inputs().detokenizer(); },
                                   {"tokenizer.json is not there", "stop_token_ids"});
  };
  job_.generation.stop = {"x"};
  write("own.h5", {{"a", {{{1}}}}}, [](ShardContent& shard) { shard.stop = {"[]"}; });
  EXPECT_EQ(inputs().detokenizer(), nullptr) << "no turn has one";
  write("jobs.h5", {{"b", {{{1}}}}});
  no_tokenizer();
  job_.generation.stop.clear();
  EXPECT_EQ(inputs().detokenizer(), nullptr);
  write("turns.h5", {{"c", {{{1}}, {{2}}}}}, [](ShardContent& shard) {
    shard.stop = {"", R"(["y"])"};
  });
  no_tokenizer();
}

TEST_F(Shards, LetAForksFirstTurnAskForTokens) {
  write("a.h5", {{"a", {{{1}}, {{2}}}}, {"alone", {{{3}}}}}, [](ShardContent& shard) {
    shard.followup = "fork";
    shard.max_new_tokens = {4, 5, 6};
  });
  EXPECT_EQ(load("a").turns[0].max_new_tokens, 4);
  job_.input.clear();
  write("b.h5", {{"alone", {{{3}}}}}, [](ShardContent& shard) { shard.followup = "fork"; });
  EXPECT_EQ(load("alone").turns[0].max_new_tokens, 10) << "there is nothing else to answer";
}

TEST_F(Shards, KeysFollowFromTheRequestNotFromItsPlace) {
  const test::ShardRequest x{"x", {{{1}}, {{2}}}}, y{"y", {{{1}}, {{2}}}};
  write("a.h5", {x});
  write("b.h5", {y});
  const batch::Request before = load("x"), other = load("y");
  EXPECT_NE(before.turns[0].random_key, before.turns[1].random_key);
  EXPECT_NE(before.turns[0].random_key, other.turns[0].random_key);
  std::swap(job_.input[0], job_.input[1]);
  EXPECT_EQ(load("x").turns[1].random_key, before.turns[1].random_key);
  job_.generation.seed = 1;
  EXPECT_NE(load("x").turns[0].random_key, before.turns[0].random_key);
}

TEST_F(Shards, KeysFollowFromASeedThatATurnGives) {
  write("a.h5", {{"x", {{{1}}}}, {"y", {{{1}}}}, {"z", {{{1}}}}}, [](ShardContent& shard) {
    shard.seed = {5, 5, 6};
  });
  const uint64_t key = load("x").turns[0].random_key;
  EXPECT_EQ(load("y").turns[0].random_key, key);
  EXPECT_NE(load("z").turns[0].random_key, key);
  job_.generation.seed = 1;
  EXPECT_EQ(load("x").turns[0].random_key, key) << "the job's seed is for turns without one";
}

TEST_F(Shards, CutLongPromptsAsAsked) {
  write("a.h5", {{"long", {{test::ascending(60)}}}, {"fits", {{test::ascending(40)}}}});
  EXPECT_NE(load("long").turns[0].refused.find("60 prompt tokens, the model's length is 50"),
            std::string::npos);
  EXPECT_EQ(load("fits").turns[0].refused, "");

  job_.limits.over_length = job::OverLength::truncate_left;  // 40 stay, with room for 10 new tokens
  const auto left = load("long").turns[0];
  ASSERT_EQ(left.tokens.size(), 40u);
  EXPECT_EQ(left.tokens.front(), 21);
  EXPECT_EQ(left.tokens.back(), 60);
  EXPECT_EQ(left.refused, "");
  EXPECT_EQ(left.truncated_tokens, 20);
  EXPECT_EQ(load("fits").turns[0].tokens, test::ascending(40));
  EXPECT_EQ(load("fits").turns[0].truncated_tokens, 0);
  EXPECT_EQ(inputs().layout().turns[0].prompt_tokens, 40);

  job_.limits.over_length = job::OverLength::truncate_middle;
  const auto middle = load("long").turns[0];
  ASSERT_EQ(middle.tokens.size(), 40u);
  EXPECT_EQ(middle.tokens[0], 1);
  EXPECT_EQ(middle.tokens[19], 20);
  EXPECT_EQ(middle.tokens[20], 41);
  EXPECT_EQ(middle.tokens.back(), 60);
}

TEST_F(Shards, RunAPromptThatJustFits) {
  write("a.h5", {{"full", {{test::ascending(50)}}}, {"one left", {{test::ascending(49)}}}});
  EXPECT_NE(load("full").turns[0].refused, "") << "no room for a token of the answer";
  EXPECT_EQ(load("one left").turns[0].refused, "");
  job_.generation.max_new_tokens = 0;
  EXPECT_EQ(load("full").turns[0].refused, "");
}

TEST_F(Shards, RefuseATurnNotAFileForItsTokens) {
  write("a.h5",
        {{"empty", {{{}}}}, {"high", {{{1, 100}}}}, {"low", {{{-1}}}}, {"good", {{{0, 99}}}}});
  EXPECT_EQ(load("empty").turns[0].refused, "the turn has no tokens");
  EXPECT_EQ(load("high").turns[0].refused,
            "token 1 of the turn is 100, the model's vocabulary has 100 (0 … 99)");
  EXPECT_EQ(load("low").turns[0].refused,
            "token 0 of the turn is -1, the model's vocabulary has 100 (0 … 99)");
  EXPECT_EQ(load("good").turns[0].refused, "");
}

TEST_F(Shards, CountOnlyWhatCanRun) {
  write("a.h5", {{"long", {{test::ascending(60)}}},
                 {"empty", {{{}}}},
                 {"bad", {{{1, 100}}}},
                 {"chain", {{test::ascending(20)}, {test::ascending(25)}, {{1}}}},
                 {"good", {{test::ascending(7)}}}});
  write("b.h5",
        {{"fork", {{test::ascending(30)}, {test::ascending(25)}, {test::ascending(5)}}},
         {"no stem", {{test::ascending(60)}, {{1}}}}},
        [](ShardContent& shard) { shard.followup = "fork"; });
  Inputs all = inputs();
  EXPECT_EQ(all.rows_with_bad_tokens(), std::vector<int64_t>{2});
  EXPECT_EQ(all.refused_requests(), 4) << "long, empty, fork, no stem";
  EXPECT_EQ(all.prompt_tokens(), 2 + 20 + 25 + 1 + 7 + 30 + 5);
  all.leave_out({2});
  EXPECT_EQ(all.refused_requests(), 5);
  EXPECT_EQ(all.prompt_tokens(), 20 + 25 + 1 + 7 + 30 + 5);
  EXPECT_TRUE(all.any_can_run());
  const auto of = [&](const std::string& id) -> const InputRequest& {
    for (const InputRequest& request : all.requests())
      if (all.prompt(request).id == id) return request;
    ADD_FAILURE() << "no request " << id;
    return all.requests().front();
  };
  for (const char* id : {"long", "empty", "bad", "no stem"}) {
    EXPECT_EQ(of(id).work, 0) << id;
    EXPECT_EQ(all.max_slots(of(id), 1, 4096), 0) << id;
  }
  EXPECT_GT(of("good").work, 0);
  EXPECT_NE(all.load(of("fork")).turns[1].refused.find("at least 55 tokens"), std::string::npos);
  EXPECT_EQ(all.load(of("fork")).turns[2].refused, "");
  EXPECT_EQ(all.load(of("chain")).turns[2].refused, "") << "48 tokens at least, of 50";
}

TEST_F(Shards, DoNotMindABadTokenThatIsCut) {
  std::vector<int32_t> tokens = test::ascending(60);
  tokens[30] = 100;
  write("a.h5", {{"long", {{tokens}}}});
  job_.limits.over_length = job::OverLength::truncate_middle;
  EXPECT_TRUE(inputs().rows_with_bad_tokens().empty());
  EXPECT_EQ(load("long").turns[0].refused, "");
  job_.limits.over_length = job::OverLength::truncate_left;
  EXPECT_EQ(inputs().rows_with_bad_tokens(), std::vector<int64_t>{0});
}

TEST_F(Shards, KnowThatNothingCanRun) {
  write("a.h5", {{"long", {{test::ascending(60)}}}, {"bad", {{{1, 100}}}}});
  Inputs all = inputs();
  EXPECT_TRUE(all.any_can_run());
  all.leave_out(all.rows_with_bad_tokens());
  EXPECT_FALSE(all.any_can_run());
  EXPECT_EQ(all.cut_prompts(), 0);
  job_.limits.over_length = job::OverLength::truncate_middle;
  EXPECT_TRUE(inputs().any_can_run());
  EXPECT_EQ(inputs().cut_prompts(), 1);
}

TEST_F(Shards, RefuseAChainThatGrowsTooLongBeforeItIsRun) {
  write("a.h5", {{"chain", {{test::ascending(20)}, {test::ascending(28)}, {{1}}}}});
  const batch::Request chain = load("chain");
  EXPECT_EQ(chain.turns[0].refused, "");
  EXPECT_EQ(chain.turns[1].refused, "") << "49 tokens leave room for one";
  EXPECT_NE(chain.turns[2].refused.find("at least 51 tokens with what comes before, the model's "
                                        "length is 50"),
            std::string::npos)
      << chain.turns[2].refused;
}

TEST_F(Shards, RefuseAnIdThatTwoFilesHave) {
  write("a.h5", {{"same", {{{1}}}}});
  write("b.h5", {{"other", {{{1}}}}, {"same", {{{1}}}}});
  test::expect_error<InputError>([&] { inputs(); }, {"b.h5", "/request_id[1]", "'same'", "unique"});
}

TEST_F(Shards, RefuseAnotherVocabulary) {
  write("a.h5", {{"a", {{{1}}}}}, [](ShardContent& shard) { shard.vocab_size = 101; });
  test::expect_error<InputError>([&] { inputs(); },
                                 {"a.h5", "vocab_size is 101", "100", "pecia-pack"});
}

TEST_F(Shards, RefuseAnotherTokenizerWhenBothAreKnown) {
  write("a.h5", {{"a", {{{1}}}}},
        [](ShardContent& shard) { shard.tokenizer_sha256 = std::string(64, 'a'); });
  EXPECT_NO_THROW(inputs()) << "the model has no tokenizer.json";
  std::ofstream(folder_ / "tokenizer.json") << "{}";
  test::expect_error<InputError>([&] { inputs(); },
                                 {"a.h5", "tokenizer_sha256 is aaaaaaaaaaaa", "pecia-pack"});
}

TEST_F(Shards, AskForNoMoreThanTheModelsLengthHolds) {
  config_.max_positions = 100;
  write("a.h5", {{"a", {{test::ascending(60)}}}},
        [](ShardContent& shard) { shard.max_new_tokens = {2'000'000'000}; });
  const Inputs all = inputs();
  const InputRequest& request = all.requests().front();
  EXPECT_EQ(all.load(request).turns[0].max_new_tokens, 40);
  EXPECT_LT(all.max_slots(request, 1, 4096), 110) << "an answer is counted once";
}

TEST_F(Shards, NeedNoMoreSlotsThanIsSaidBeforehand) {
  write("a.h5", {{"a", {{test::ascending(17)}, {test::ascending(1)}, {test::ascending(33)}}}});
  write("b.h5", {{"b", {{test::ascending(29)}, {test::ascending(2)}, {test::ascending(13)}}}},
        [](ShardContent& shard) { shard.followup = "fork"; });
  const Inputs all = inputs();
  for (const int ring_size : {1, 2, 3, 8})
    for (const int64_t max_batch_tokens : {1, 5, 16, 4096}) {
      schedule::SchedulerLimits limits;
      limits.ring_size = ring_size;
      limits.max_batch_tokens = max_batch_tokens;
      const schedule::Scheduler scheduler(limits);
      for (const InputRequest& request : all.requests())
        EXPECT_LE(scheduler.tokens_needed(all.load(request)),
                  all.max_slots(request, ring_size, max_batch_tokens))
            << ring_size << " ranks, " << max_batch_tokens << " tokens a pass";
    }
}

/// A chain, a request of one turn and a fork that begin with the same 33 tokens.
class AlikeShards : public Shards {
 protected:
  AlikeShards() {
    config_.max_positions = 100;
    write("a.h5",
          {{"chain", {{test::ascending(35)}, {{1}}, {{2}}}}, {"one", {{test::ascending(34)}}}});
    std::vector<int32_t> stem = test::ascending(33);
    stem.insert(stem.end(), {7, 7, 7});
    write("b.h5", {{"fork", {{stem}, {{3, 4}}, {{5}}}}},
          [](ShardContent& shard) { shard.followup = "fork"; });
  }
};

TEST_F(AlikeShards, CountWhatForksShareAndComputeAgain) {
  Inputs all = inputs();
  const int64_t prompt_tokens = all.prompt_tokens();
  const std::vector<PromptPrefix> prompts = all.prompt_prefixes(16);
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[2].prompt_tokens, 36);
  EXPECT_EQ(prompts[2].answer_tokens, 2 + 10 + 1 + 10);
  EXPECT_EQ(prompts[2].branches, 3);
  const auto found = find_prefixes(prompts, {.block = 16});
  ASSERT_EQ(found, (std::vector<SharedPrefix>{{32, {0, 1, 2}}}));
  const double alone = all.requests()[2].work;
  all.share(found);
  EXPECT_EQ(all.prompt_tokens(), prompt_tokens);
  EXPECT_EQ(all.shared_tokens(), 32 + 32 - 2 * 4);
  EXPECT_EQ(all.requests()[2].stem_end_tokens, 4);
  EXPECT_EQ(all.requests()[1].stem_end_tokens, 0);
  EXPECT_LT(all.requests()[2].work, alone);
  EXPECT_GT(all.requests()[2].work, 0);
  all.leave_out({4});  // the fork's first turn
  EXPECT_EQ(all.shared_tokens(), 32);
}

TEST_F(AlikeShards, NeedNoMoreSlotsTogetherThanIsSaidBeforehand) {
  Inputs all = inputs();
  all.share(find_prefixes(all.prompt_prefixes(16), {.block = 16}));
  std::vector<batch::Request> requests;
  for (const InputRequest& request : all.requests()) requests.push_back(all.load(request));
  for (const bool layout : {false, true})
    for (const int ring_size : {1, 2, 8})
      for (const int64_t max_batch_tokens : {16, 32, 4096}) {
        schedule::SchedulerLimits limits;
        limits.layout_invariant = layout;
        limits.ring_size = ring_size;
        limits.max_batch_tokens = max_batch_tokens;
        const int dealt_to = layout ? parallel::layout_ranks : ring_size;
        const schedule::Scheduler scheduler(limits);
        int64_t said = 0, needed = 0;
        for (size_t i = 0; i < requests.size(); ++i) {
          const auto& request = all.requests()[i];
          said += dealt_to / ring_size * all.max_slots(request, dealt_to, max_batch_tokens);
          const auto more = joined({requests.front(), requests[i]}, 32);
          needed = std::max(needed, scheduler.tokens_needed(*more));
          EXPECT_LE(needed, said) << i << ": " << ring_size << " ranks, " << max_batch_tokens
                                  << " tokens a pass, " << layout;
        }
      }
}

TEST_F(Shards, HaveNoForksOfOneTurn) {
  write("a.h5", {{"one", {{{1, 2}}}}}, [](ShardContent& shard) { shard.followup = "fork"; });
  EXPECT_EQ(load("one").followup, io::Followup::chain);
}

/// longrope rotates a request by its longest sequence, and forks by their longest branch.
TEST_F(AlikeShards, ShareNothingWhereTheyAreRotatedByOtherFactors) {
  config_.rope.scaling = model::RopeScaling::longrope;
  const auto longer_than = [&](int64_t positions) {
    config_.rope.original_max_positions = positions;
    std::vector<int64_t> longer;
    const std::vector<PromptPrefix> prompts = inputs().prompt_prefixes(16);
    for (const PromptPrefix& prompt : prompts)
      if (prompt.hashes != prefix_hashes(test::ascending(33), 16, 0))
        longer.push_back(prompt.request);
    return longer;
  };
  EXPECT_EQ(longer_than(36 + 2 + 10), std::vector<int64_t>{0}) << "the chain has 67 tokens";
  EXPECT_EQ(longer_than(36 + 2 + 10 - 1), (std::vector<int64_t>{0, 2}));
}

TEST_F(AlikeShards, ShareAgainAfterAnEarlierStart) {
  std::vector<EarlierTurn> earlier(7);
  for (const size_t row : {0, 4}) earlier[row].state = io::TurnState::done;  // the first turns
  earlier[0].prompt_tokens = 35, earlier[4].prompt_tokens = 36;
  const auto prompts = Inputs(job_, config_, earlier).prompt_prefixes(16);
  ASSERT_EQ(prompts.size(), 2u) << "a chain goes on by itself";
  EXPECT_EQ(prompts[1].request, 2);
  EXPECT_EQ(prompts[1].branches, 2);
  EXPECT_EQ(prompts[1].hashes, prompts[0].hashes);
  earlier[4].state = io::TurnState::failed;
  EXPECT_EQ(Inputs(job_, config_, earlier).prompt_prefixes(16).size(), 1u);
  // A first turn that was cut stays as it was, however prompts are cut now.
  earlier[4] = {io::TurnState::done, 1, 20, 0};
  const auto cut = Inputs(job_, config_, earlier).prompt_prefixes(2);
  const auto kept = std::vector<int32_t>{17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
                                         27, 28, 29, 30, 31, 32, 33, 7,  7,  7};
  EXPECT_EQ(cut[1].hashes, prefix_hashes(kept, 2, 0));
}

/// What a shard says besides its prompts.
void add_products(const std::filesystem::path& shard, const std::vector<int32_t>& produce) {
  test::Hdf5Editor(shard).set("/produce", produce);
}

TEST_F(Shards, SayWhatATurnGives) {
  write("p.h5", {{"a", {{{5, 6, 7}}}}, {"b", {{{8, 9}}, {{4}}}}, {"c", {{{5, 6}}}}});
  add_products(folder_ / "p.h5", {1, 2, 0, 3});
  {
    test::Hdf5Editor file(folder_ / "p.h5");
    file.set("/continuation_offsets", std::vector<int64_t>{0, 0, 1, 1, 3});
    file.set("/continuation_lengths", std::vector<int32_t>{1, 1, 1});
    file.set("/continuation_tokens", std::vector<int32_t>{3, 1, 2});
  }
  const Inputs all = inputs();
  const auto& requests = all.requests();
  EXPECT_EQ(all.produce(requests[0], 0), io::Produce::vector);
  EXPECT_EQ(all.max_new_tokens(requests[0], 0), 0);
  EXPECT_EQ(all.max_new_tokens(requests[1], 1), 10);
  EXPECT_TRUE(all.needs_head());
  const io::ResultsLayout layout = all.layout();
  EXPECT_EQ(layout.vector_width, 8);
  EXPECT_EQ(layout.turns[0].vectors, 1);
  EXPECT_EQ(layout.turns[0].slots, 0);
  EXPECT_EQ(layout.turns[1].scores, 1);
  EXPECT_EQ(layout.turns[1].score_tokens, 1);
  EXPECT_EQ(layout.turns[2].slots, 10);
  EXPECT_EQ(layout.turns[3].scores, 2);
  EXPECT_EQ(load("a").turns[0].spans, (std::vector<io::TokenSpan>{{2, 3}}));
  EXPECT_EQ(load("c").turns[0].continuations, (std::vector<std::vector<int32_t>>{{1}, {2}}));
  EXPECT_EQ(load("c").turns.size(), 1u) << "each follows from the prompt's last token";
}

TEST_F(Shards, ForkContinuationsOfSeveralTokens) {
  write("p.h5", {{"a", {{{5, 6, 7}}}}});
  add_products(folder_ / "p.h5", {2});
  {
    test::Hdf5Editor file(folder_ / "p.h5");
    file.set("/continuation_offsets", std::vector<int64_t>{0, 3});
    file.set("/continuation_lengths", std::vector<int32_t>{3, 1, 2});
    file.set("/continuation_tokens", std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  }
  const Request request = load("a");
  EXPECT_EQ(request.followup, io::Followup::fork);
  ASSERT_EQ(request.turns.size(), 3u);
  EXPECT_EQ(request.turns[1].tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(request.turns[1].continuation, 0);
  EXPECT_EQ(request.turns[2].tokens, (std::vector<int32_t>{5}));
  EXPECT_EQ(request.turns[2].continuation, 2);
  EXPECT_EQ(request.turns[2].row, 0);
  EXPECT_EQ(inputs().layout().turns[0].score_tokens, 6);
  EXPECT_TRUE(inputs().prompt_prefixes(1).empty()) << "it shares its prompt with itself alone";
}

TEST_F(Shards, GiveVectorsWhereTheJobDoes) {
  write("p.h5", {{"a", {{{5, 6, 7}}}}, {"b", {{{1, 2}}, {{3}}, {{4, 5}}}}},
        [](ShardContent& content) { content.followup = "fork"; });
  job_.produce = io::Produce::vector;
  job_.vector.pool = job::Pool::mean;
  const Inputs all = inputs();
  EXPECT_FALSE(all.needs_head());
  EXPECT_EQ(all.produce(all.requests()[1], 0), io::Produce::text) << "a fork's stem is only read";
  EXPECT_EQ(all.layout().turns[1].vectors, 0);
  EXPECT_EQ(all.layout().turns[3].vectors, 1);
  EXPECT_EQ(load("b").turns[2].spans, (std::vector<io::TokenSpan>{{0, 2}}));
  job_.generation.prompt_logprobs = 1;
  EXPECT_TRUE(inputs().needs_head());
}

TEST_F(Shards, RefuseWhatGivesNothing) {
  write("p.h5", {{"one", {{{5}}}}, {"none", {{{5, 6}}}}, {"long", {{test::ascending(49)}}}},
        [](ShardContent& content) {
          content.max_new_tokens = {-1, 3, -1};
        });
  add_products(folder_ / "p.h5", {2, 1, 2});
  {
    test::Hdf5Editor file(folder_ / "p.h5");
    file.set("/continuation_offsets", std::vector<int64_t>{0, 0, 0, 1});
    file.set("/continuation_lengths", std::vector<int32_t>{3});
    file.set("/continuation_tokens", std::vector<int32_t>{1, 2, 3});
  }
  EXPECT_THAT(load("one").turns[0].refused, testing::HasSubstr("there is no prediction"));
  EXPECT_THAT(load("none").turns[0].refused, testing::HasSubstr("has no answer"));
  EXPECT_THAT(load("long").turns[0].refused,
              testing::HasSubstr("51 tokens with the longest continuation"));
  EXPECT_FALSE(load("long").turns[1].refused.empty());
  job_.vector.pool = job::Pool::spans;
  EXPECT_THAT(load("none").turns[0].refused, testing::HasSubstr("has no answer"));
}

}  // namespace
}  // namespace pecia::batch
