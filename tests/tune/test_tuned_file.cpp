// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/simulation/tune/tuned_file.hpp"
#include "tests/tune/made_up.hpp"

namespace pecia::tune {
namespace {

using Json = nlohmann::ordered_json;

Json made_up_file() {
  Tuned tuned = made_up();
  fit(tuned);
  return to_json(tuned);
}

/// What is wrong with the file.
std::string refusal(const std::string& text) {
  try {
    parse_tuned("tuned.json", text);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(TunedFile, GivesBackWhatWasWritten) {
  Tuned tuned = made_up();
  fit(tuned);
  const std::string text = json_text(to_json(tuned), 2);
  const Tuned read = parse_tuned("tuned.json", text);
  EXPECT_EQ(json_text(to_json(read), 2), text);
  EXPECT_EQ(read.loss, tuned.loss);
  EXPECT_EQ(read.missed, tuned.missed);
  EXPECT_EQ(read.held_out_goals, tuned.held_out_goals);
  EXPECT_EQ(read.chosen, tuned.chosen);
  EXPECT_EQ(read.levels[1].levels, tuned.levels[1].levels);
  EXPECT_EQ(read.costs(3000).of({0.34, 3, {2}}), tuned.costs(3000).of({0.34, 3, {2}}));
}

TEST(TunedFile, KeepsTheDealsOfLayersAndHeads) {
  Tuned tuned = made_up_with_deals();
  fit(tuned);
  const std::string text = json_text(to_json(tuned), 2);
  const Tuned read = parse_tuned("tuned.json", text);
  EXPECT_EQ(json_text(to_json(read), 2), text);
  EXPECT_EQ(read.layer_tokens, tuned.layer_tokens);
  const Setting setting{0.34, 3, {4, 2}, Deal::mass};
  EXPECT_EQ(read.costs(3000).of(setting), tuned.costs(3000).of(setting));
  EXPECT_LT(read.costs(3000).loss(setting), read.costs(3000).loss({0.34, 3, {4, 2}}));
  Json file = to_json(tuned);
  file["token_shares"] = Json::array();
  EXPECT_THAT(refusal(json_text(file)), testing::HasSubstr("has no token_shares"));
  file = to_json(tuned);
  file["token_shares"][0]["heads"][0]["lost"].erase(0);
  EXPECT_THAT(refusal(json_text(file)), testing::HasSubstr("has no 51 shares that are lost"));
  file = to_json(tuned);
  file["token_shares"].erase(0);
  EXPECT_THAT(refusal(json_text(file)), testing::HasSubstr("of another number of layers"));
  file = to_json(tuned);
  file["samples"].back()["deal"] = "odd";
  EXPECT_THAT(refusal(json_text(file)), testing::HasSubstr("neither even nor spread nor mass"));
  file = to_json(tuned);
  file["samples"].back()["micro"] = {1, 17};
  EXPECT_THAT(refusal(json_text(file)), testing::HasSubstr("has a micro that is no list"));
}

TEST(TunedFile, RefusesTextThatIsNoFileOfThisSchema) {
  EXPECT_THAT(refusal("no JSON"), testing::HasSubstr("tuned.json: this is no JSON"));
  EXPECT_THAT(refusal(""), testing::HasSubstr("this is no JSON"));
  EXPECT_THAT(refusal("[]"), testing::HasSubstr("the file is no map"));
  EXPECT_THAT(refusal("{}"), testing::HasSubstr("the file lacks schema"));
  EXPECT_THAT(refusal(R"({"schema": "pecia.tuned/1"})"),
              testing::HasSubstr("has another schema than pecia.tuned/4"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), testing::HasSubstr("JSON"));
}

TEST(TunedFile, RefusesToLackAnything) {
  const Json whole = made_up_file();
  for (const auto& [key, value] : whole.items()) {
    Json part = whole;
    part.erase(key);
    EXPECT_THAT(refusal(json_text(part)), testing::HasSubstr("lacks " + key));
  }
}

TEST(TunedFile, RefusesValuesOfTheWrongKindAndOutOfRange) {
  struct Bad {
    const char* where;
    Json value;
    const char* why;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"/grid/cp", 0, "grid has a cp that is no whole number from 1"},
           {"/grid/cp", 5, "the file has levels of another number of ranks"},
           {"/geometry", "round", "neither disjoint nor nested"},
           {"/version", 1, "a version that is no text"},
           {"/loss_model/curves/0/knots/1/loss", -1, "loss_model.curves[0].knots[1] has a loss"},
           {"/loss_model/curves/0/knots/1/drop", 0, "curves[0] has knots that do not grow"},
           {"/loss_model/curves/1/knots", Json::array(), "curves[1] has no knots"},
           {"/loss_model/curves/1/levels", 2, "loss_model has no curve of 3 levels"},
           {"/loss_model/power", 2, "loss_model has a power"},
           {"/micros", Json::array(), "has no micros from 1 to 16"},
           {"/micros/0", 17, "has no micros from 1 to 16"},
           {"/facts/rates/attention_flops", 0, "facts.rates has a attention_flops"},
           {"/facts/pass_tokens", 0, "facts has a pass_tokens"},
           {"/samples/3/micro", 0, "samples[3] has a micro"},
           {"/samples/3/retrieval", 1.5, "samples[3] has a retrieval"},
           {"/samples/3/prompt", "other", "has no dense sample of prompt other"},
           {"/chosen/0/found/retrieval", -1, "chosen[0].found has a retrieval"},
           {"/dense/0/retrieval", -1, "dense[0] has a retrieval"},
           {"/held_out_goals/0/kept", 1, "held_out_goals[0] has a kept"},
           {"/time_model/s_per_pair", "1", "time_model has a s_per_pair that is no number"},
           {"/loss_model/longest", 10, "loss_model has a longest"},
           {"/levels", Json::array(), "has no levels"},
           {"/levels/0/segments/0", {0, 0, 2, 2}, "not made of those below"},
           {"/levels/0/segments/0", {0, 0, "x", 0}, "something else among whole numbers"},
           {"/levels/0/segments/0", Json::array(), "unequal numbers of ranks"},
           {"/samples/3/drop", 0.96, "samples[3] has a drop"},
           {"/samples/3/levels", 1, "samples[3] has a levels"},
           {"/chosen/0/met", 1, "neither true nor false"},
           {"/dense/0/tokens", 0.5, "dense[0] has a tokens"},
           {"/chosen/0/goal", Json::array(), "goal is no map"},
           {"/chosen/0/found/drop", nullptr, "chosen[0].found has a drop"}}) {
    Json file = made_up_file();
    file[Json::json_pointer(bad.where)] = bad.value;
    EXPECT_THAT(refusal(json_text(file)), testing::HasSubstr(bad.why)) << bad.where;
  }
}

TEST(TunedFile, RefusesAFileThatIsNotThere) {
  EXPECT_THROW(read_tuned("/nowhere/tuned.json"), InputError);
}

}  // namespace
}  // namespace pecia::tune
