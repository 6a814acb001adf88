// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/pecia/plan_batch.hpp"
#include "apps/pecia/plan_lengths.hpp"
#include "apps/pecia/plan_text.hpp"
#include "lib/base/core/error.hpp"
#include "lib/model/config/presets.hpp"
#include "lib/work/job/job_model.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <typename Ask>
std::string refusal_of(const Ask& ask) {
  try {
    ask();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AskedRequests, AreReadFromTheirForm) {
  const auto asked = parse_requests({"128000:500x40", "20+30"});
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].shape, (simulation::RequestShape{128000, 0, 500}));
  EXPECT_EQ(asked[0].count, 40);
  EXPECT_EQ(asked[1].shape, (simulation::RequestShape{20, 30, 1}));
  EXPECT_EQ(asked[1].count, 1);
}

TEST(AskedRequests, OfAnotherFormAreRefusedAsTheyWereTyped) {
  for (const char* wrong : {"", "x0", "5x0", "5x", "5x-1", "-5", "-5x3", "1e30", "1e30x2", "5:1e3",
                            "5x1000001", "5x99999999999999999999", "5x3x4", "5 x3", "0", "5:0"}) {
    const std::string said = refusal_of([&] { parse_requests({wrong}); });
    EXPECT_THAT(said, HasSubstr(fmt::format("request {}: ", wrong)));
    EXPECT_THAT(said, HasSubstr("PROMPT[+CACHED][:NEW][xCOUNT]"));
  }
}

TEST(AskedRequests, AreAMillionAtMostInAll) {
  EXPECT_EQ(parse_requests({"5x400000", "6x600000"}).size(), 2u);
  EXPECT_THAT(refusal_of([] {
                parse_requests({"5x400000", "6x600001"});
              }),
              HasSubstr("more than 1000000 requests"));
}

std::string text_of(const std::vector<std::string>& asked) {
  const model::ModelConfig config = model::config_of_preset_or_folder("smollm2-135m");
  return batch_text(simulation::batch_report({simulated(parse_requests(asked)), config}));
}

TEST(BatchText, SaysLengthsOfEachRequestAndOfAll) {
  EXPECT_EQ(text_of({"100000:500x200"}),
            "  batch: 200 requests; prompts: 100000 tokens each, 20.0M in all; answers: up to 500 "
            "tokens each, 100k in all\n");
  EXPECT_EQ(text_of({"2000", "300:5x3"}),
            "  batch: 4 requests; prompts: 300 to 2000 tokens each, 2.9k in all; answers: up to 5 "
            "tokens each, 16 in all\n");
  EXPECT_EQ(text_of({"2000+500:9"}),
            "  batch: 1 request; prompts: 2500 tokens; answers: up to 9 tokens\n");
  EXPECT_EQ(text_of({"1"}), "  batch: 1 request; prompts: 1 token; answers: up to 1 token\n");
}

/// What is said of a request by a job that scales the positions of this preset, or does not.
std::string length_refusal(const std::string& request, const std::string& preset,
                           std::optional<job::RopeOverride> scaling = {}) {
  job::Job job;
  job.model.rope_scaling = scaling;
  const model::ModelConfig config =
      job::model_config_of(job, model::config_of_preset_or_folder(preset));
  return refusal_of([&] { refuse_long_requests(parse_requests({request}), job, config, preset); });
}

TEST(LongRequests, AreRefusedWithTheModelsLengthAndWhatReadsThem) {
  EXPECT_EQ(length_refusal("100000:500x2", "llama-3-70b"),
            "request 100000:500x2: it has 100500 tokens with its answer, and llama-3-70b reads "
            "8192; plan for a model that reads as much (--model llama-3.1-70b or llama-3.3-70b), "
            "stretch its positions (--set 'model.rope_scaling={type: yarn, factor: 13}') or ask "
            "about shorter requests");
  EXPECT_THAT(length_refusal("1000000", "qwen2.5-32b"), HasSubstr("--model llama-4-scout"));
}

TEST(LongRequests, AreThoseThatDoNotFitWithCachedTokensAndTheirAnswer) {
  EXPECT_EQ(length_refusal("8191", "llama-3-8b"), "accepted");
  EXPECT_EQ(length_refusal("8000:192", "llama-3-8b"), "accepted");
  EXPECT_THAT(length_refusal("8192", "llama-3-8b"), HasSubstr("it has 8193 tokens"));
  EXPECT_THAT(length_refusal("8000:193", "llama-3-8b"), HasSubstr("it has 8193 tokens"));
  EXPECT_THAT(length_refusal("100+8000:93", "llama-3-8b"), HasSubstr("it has 8193 tokens"));
}

TEST(LongRequests, ArePlannedWhereTheJobStretchesPositions) {
  const job::RopeOverride yarn{model::RopeScaling::yarn, 13};
  EXPECT_EQ(length_refusal("100000:500", "llama-3-70b", yarn), "accepted");
  const job::RopeOverride linear{model::RopeScaling::linear, 2};
  EXPECT_THAT(length_refusal("100000:500", "llama-3-70b", linear),
              AllOf(HasSubstr("reads 16384"), HasSubstr("{type: linear, factor: 13}")));
}

TEST(LongRequests, HaveNoRemedyThatWouldBeRefused) {
  EXPECT_THAT(length_refusal("200000", "llama-3.1-8b"), Not(HasSubstr("rope_scaling")))
      << "its positions are scaled already";
  EXPECT_THAT(length_refusal("1099511627776", "llama-3-8b"),
              AllOf(Not(HasSubstr("rope_scaling")), Not(HasSubstr("--model")),
                    HasSubstr("reads 8192; ask about shorter requests")));
}

TEST(PromptsThatCannotRun, AreCountedByTheReason) {
  const test::TempFolder folder;
  const model::ModelConfig config = model::config_of_preset_or_folder("llama-2-7b");  // 4096
  job::Job job;
  job.input = {folder / "p.h5"};
  const auto said = [&](const std::vector<int32_t>& lengths) {
    test::ShardContent content;
    for (size_t i = 0; i < lengths.size(); ++i)
      content.requests.push_back({fmt::format("r{}", i), {{test::ascending(lengths[i])}}});
    test::write_shard(job.input.front(), content);
    const batch::Inputs inputs(job, config);
    return refusal_of([&] { refuse_without_prompts(inputs, job, config); });
  };
  EXPECT_THAT(said({5000, 9000}),
              AllOf(HasSubstr("all 2 requests are longer than the model reads (4096 tokens)"),
                    HasSubstr("limits.over_length"), HasSubstr("{type: yarn, factor: 3}")));
  EXPECT_THAT(said({4096}), HasSubstr("the only request is longer than the model reads"));
  EXPECT_THAT(said({5000, 0}), HasSubstr("none of the 2 requests can run, and 1 of them"));
}

}  // namespace
}  // namespace pecia::app
