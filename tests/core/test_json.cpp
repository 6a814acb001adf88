// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/base/core/json.hpp"

namespace pecia {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

TEST(JsonText, SurvivesBytesThatAreNotUtf8) {
  EXPECT_EQ(json_text(ordered_json{{"path", "a\xff"}}), "{\"path\":\"a\xef\xbf\xbd\"}");
}

TEST(JsonText, IndentsWhereItIsAskedTo) {
  EXPECT_EQ(json_text(ordered_json{{"b", 1}, {"a", 2}}, 2), "{\n  \"b\": 1,\n  \"a\": 2\n}");
}

TEST(ParseJson, ThrowsWhereTryJsonDiscards) {
  EXPECT_EQ(parse_json<json>("[1,2]").size(), 2u);
  EXPECT_THROW(parse_json<ordered_json>("[1,"), json::parse_error);
  EXPECT_TRUE(try_json<json>("[1,").is_discarded());
  EXPECT_EQ(try_json<ordered_json>(R"({"b":1,"a":[2]})").begin().key(), "b");
}

TEST(TryJson, LeavesOutWhatIsNestedTooDeeply) {
  EXPECT_EQ(json_text(try_json<json>("[1,[2,[3]]]", 1)), "[1,[]]");
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_NO_THROW(try_json<json>(deep, 8));
}

}  // namespace
}  // namespace pecia
