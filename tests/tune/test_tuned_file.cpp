// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"
#include "lib/core/json.hpp"
#include "lib/tune/tuned_file.hpp"
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
  EXPECT_EQ(read.time, tuned.time);
  EXPECT_EQ(read.chosen, tuned.chosen);
  EXPECT_EQ(read.levels[1].levels, tuned.levels[1].levels);
  EXPECT_EQ(read.costs(3000).of({0.34, 3}), tuned.costs(3000).of({0.34, 3}));
}

TEST(TunedFile, RefusesTextThatIsNoFileOfThisSchema) {
  EXPECT_THAT(refusal("no JSON"), testing::HasSubstr("tuned.json: this is no JSON"));
  EXPECT_THAT(refusal(""), testing::HasSubstr("this is no JSON"));
  EXPECT_THAT(refusal("[]"), testing::HasSubstr("the file is no map"));
  EXPECT_THAT(refusal("{}"), testing::HasSubstr("the file lacks schema"));
  EXPECT_THAT(refusal(R"({"schema": "pecia.tuned/2"})"),
              testing::HasSubstr("has another schema than pecia.tuned/1"));
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
           {"/loss_model/terms/drop/at_longest", -1, "loss_model.terms.drop has a at_longest"},
           {"/time_model/s_per_pair", "1", "time_model has a s_per_pair that is no number"},
           {"/loss_model/longest", 10, "loss_model has a longest"},
           {"/levels", Json::array(), "has no levels"},
           {"/levels/0/segments/0", {0, 0, 2, 2}, "not made of those below"},
           {"/levels/0/segments/0", {0, 0, "x", 0}, "something else among numbers"},
           {"/levels/0/segments/0", Json::array(), "unequal numbers of ranks"},
           {"/levels/0/shares", {0.5}, "not one share for each level"},
           {"/levels/1/shares/1", 40, "a share out of range"},
           {"/samples/3/drop", 0.96, "samples[3] has a drop"},
           {"/samples/3/levels", 1, "samples[3] has a levels"},
           {"/samples/0/held_out", 1, "neither true nor false"},
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
