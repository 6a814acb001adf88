// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "lib/base/core/error.hpp"
#include "lib/files/prompts/prompts.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using test::Hdf5Editor;
using test::Strings;
using Int32s = std::vector<int32_t>;
using Int64s = std::vector<int64_t>;
using Texts = std::vector<std::string>;

struct Broken {
  const char* name;
  std::function<void(Hdf5Editor&)> edit;
  std::vector<std::string> message;  ///< parts; the file's path is expected always
};

const Broken broken_shards[] = {
    {"NoTokens", [](auto& f) { f.remove("/tokens"); }, {"/tokens is missing", "pecia-pack"}},
    {"NoTurnOffsets", [](auto& f) { f.remove("/turn_offsets"); }, {"/turn_offsets is missing"}},
    {"NoRequestOffsets",
     [](auto& f) { f.remove("/request_offsets"); },
     {"/request_offsets is missing"}},
    {"NoIds", [](auto& f) { f.remove("/request_id"); }, {"/request_id is missing"}},
    {"AnotherSchema",
     [](auto& f) { f.set_attribute("schema", "pecia.prompts/2", Strings::fixed_length); },
     {"'schema' is 'pecia.prompts/2'", "'pecia.prompts/1'"}},
    {"SchemaIsANumber",
     [](auto& f) { f.set_attribute("schema", 1); },
     {"'schema'", "must be text"}},
    {"UnknownFollowup",
     [](auto& f) { f.set_attribute("followup", "tree", Strings::variable_length); },
     {"'followup' is 'tree'", "'chain' or 'fork'"}},
    {"VocabIsText",
     [](auto& f) { f.set_attribute("vocab_size", "many", Strings::fixed_length); },
     {"'vocab_size'", "must be an integer"}},
    {"VocabIsNegative", [](auto& f) { f.set_attribute("vocab_size", -5); }, {"'vocab_size' is -5"}},
    {"FloatTokens",
     [](auto& f) { f.set("/tokens", std::vector<float>(6)); },
     {"/tokens holds float32", "int32"}},
    {"TextTokens",
     [](auto& f) { f.set("/tokens", Texts(6, "x"), Strings::fixed_length); },
     {"/tokens holds fixed-length string"}},
    {"MatrixOfTokens",
     [](auto& f) { f.set_matrix("/tokens", 2, 3); },
     {"/tokens has 2 dimensions"}},
    {"UnwrittenTokens",
     [](auto& f) { f.set_unwritten("/tokens", 6); },
     {"/tokens was not wholly written", "0 of 1 chunks"}},
    {"HugeUnwrittenTokens",
     [](auto& f) { f.set_unwritten("/tokens", int64_t{1} << 58); },
     {"/tokens was not wholly written"}},
    {"FloatOffsets",
     [](auto& f) {
       f.set("/turn_offsets", std::vector<double>{0, 3, 3, 4, 6});
     },
     {"/turn_offsets holds float64", "int64"}},
    {"MatrixOfOffsets",
     [](auto& f) { f.set_matrix("/request_offsets", 3, 1); },
     {"/request_offsets has 2 dimensions"}},
    {"NoOffsetAtAll",
     [](auto& f) { f.set("/turn_offsets", Int64s{}); },
     {"/turn_offsets is empty"}},
    {"OffsetsBeginLate",
     [](auto& f) {
       f.set("/turn_offsets", Int64s{1, 3, 3, 4, 6});
     },
     {"/turn_offsets[0] is 1"}},
    {"OffsetsBeginBelowZero",
     [](auto& f) {
       f.set("/turn_offsets", Int64s{-1, 3, 3, 4, 6});
     },
     {"/turn_offsets[0] is -1"}},
    {"OffsetsFall",
     [](auto& f) {
       f.set("/turn_offsets", Int64s{0, 3, 2, 4, 6});
     },
     {"/turn_offsets[2] is 2, less than the 3"}},
    {"OffsetsBeyondTokens",
     [](auto& f) {
       f.set("/turn_offsets", Int64s{0, 3, 3, 4, 7});
     },
     {"/turn_offsets[4] is 7, beyond the 6 entries of /tokens"}},
    {"OffsetsNearOverflow",
     [](auto& f) {
       f.set("/turn_offsets", Int64s{0, 3, 3, 4, INT64_MAX});
     },
     {"/turn_offsets[4] is 9223372036854775807, beyond"}},
    {"OffsetAboveInt64",
     [](auto& f) {
       f.set("/turn_offsets", std::vector<uint64_t>{0, 3, 3, 4, UINT64_MAX});
     },
     {"/turn_offsets[4] is 18446744073709551615"}},
    {"TokensLeftOver",
     [](auto& f) {
       f.set("/turn_offsets", Int64s{0, 3, 3, 4, 5});
     },
     {"/turn_offsets[4], the last, is 5", "6 entries"}},
    {"RequestsBeyondTurns",
     [](auto& f) {
       f.set("/request_offsets", Int64s{0, 3, 5});
     },
     {"/request_offsets[2] is 5, beyond the 4"}},
    {"TurnsLeftOver",
     [](auto& f) {
       f.set("/request_offsets", Int64s{0, 2, 3});
     },
     {"/request_offsets[2], the last, is 3"}},
    {"RequestWithoutTurns",
     [](auto& f) {
       f.set("/request_offsets", Int64s{0, 4, 4});
     },
     {"/request_offsets[1]", "'b' has no turns"}},
    {"TooFewIds",
     [](auto& f) { f.set("/request_id", Texts{"a"}, Strings::fixed_length); },
     {"/request_id has 1 row,", "2 requests"}},
    {"NumericIds",
     [](auto& f) {
       f.set("/request_id", Int32s{1, 2});
     },
     {"/request_id holds int32", "UTF-8"}},
    {"EmptyId",
     [](auto& f) {
       f.set("/request_id", Texts{"a", ""}, Strings::variable_length);
     },
     {"/request_id[1] is empty"}},
    {"SameIdTwice",
     [](auto& f) {
       f.set("/request_id", Texts{"a", "a"}, Strings::fixed_length);
     },
     {"/request_id[1] is 'a', as is row 0", "rename"}},
    {"IdIsNoText",
     [](auto& f) {
       f.set("/request_id", Texts{"a", "\xff"}, Strings::fixed_length);
     },
     {"/request_id[1] is no UTF-8"}},
    {"TooFewMaxNewTokens",
     [](auto& f) { f.set("/max_new_tokens", Int32s{1}); },
     {"/max_new_tokens has 1 row for 4 turns"}},
    {"MaxNewTokensBeyondInt32",
     [](auto& f) {
       f.set("/max_new_tokens", Int64s{1, 2, 1ll << 31, 3});
     },
     {"/max_new_tokens[2] is 2147483648"}},
    {"FloatMaxNewTokens",
     [](auto& f) { f.set("/max_new_tokens", std::vector<float>(4)); },
     {"/max_new_tokens holds float32"}},
    {"IntegerTemperature",
     [](auto& f) { f.set("/temperature", Int32s(4)); },
     {"/temperature holds int32", "float32"}},
    {"TooManySeeds", [](auto& f) { f.set("/seed", Int64s(5)); }, {"/seed has 5 rows for 4 turns"}},
    {"NegativeMaxNewTokens",
     [](auto& f) {
       f.set("/max_new_tokens", Int32s{1, -1, -2, 3});
     },
     {"/max_new_tokens[2] is -2", "-1 where the job's holds"}},
    {"NegativeTemperature",
     [](auto& f) {
       f.set("/temperature", std::vector<float>{0, NAN, -1, 0});
     },
     {"/temperature[2] is -1"}},
    {"InfiniteTemperature",
     [](auto& f) {
       f.set("/temperature", std::vector<float>{0, INFINITY, 0, 0});
     },
     {"/temperature[1] is inf"}},
    {"TopPOfNothing",
     [](auto& f) {
       f.set("/top_p", std::vector<float>{1, NAN, 0.5f, 0});
     },
     {"/top_p[3] is 0"}},
    {"TooFewStops",
     [](auto& f) { f.set("/stop", Texts{"[]"}, Strings::fixed_length); },
     {"/stop has 1 row for 4 turns"}},
    {"StopIsNoText", [](auto& f) { f.set("/stop", Int32s(4)); }, {"/stop holds int32"}},
    {"StopIsNoJson",
     [](auto& f) {
       f.set("/stop", Texts{"", "\n", "", ""}, Strings::variable_length);
     },
     {"/stop[1] is '\\n'", "JSON array"}},
    {"StopIsNoArray",
     [](auto& f) {
       f.set("/stop", Texts{"", "", "", "\"x\""}, Strings::variable_length);
     },
     {"/stop[3] is '\"x\"'"}},
    {"StopHasANumber",
     [](auto& f) {
       f.set("/stop", Texts{"[]", "", "[\"x\", 5]", ""}, Strings::variable_length);
     },
     {"/stop[2] is '[\"x\", 5]'"}},
    {"StopIsNested",
     [](auto& f) {
       f.set("/stop", Texts{"[[\"x\"]]", "", "", ""}, Strings::fixed_length);
     },
     {"/stop[0] is '[[\"x\"]]'"}},
    {"EmptyStop",
     [](auto& f) {
       f.set("/stop", Texts{"[\"x\", \"\"]", "", "", ""}, Strings::fixed_length);
     },
     {"/stop[0]", "not empty"}},
    {"StopIsNoUtf8",
     [](auto& f) {
       f.set("/stop", Texts{"[\"\xff\"]", "", "", ""}, Strings::fixed_length);
     },
     {"/stop[0]"}},
    {"NegativeArrival",
     [](auto& f) {
       f.set("/arrival_s", std::vector<double>{0, -1});
     },
     {"/arrival_s[1] is -1"}},
    {"ArrivalIsNaN",
     [](auto& f) {
       f.set("/arrival_s", std::vector<double>{0, NAN});
     },
     {"/arrival_s[1] is nan"}},
};

class EveryBrokenShard : public testing::TestWithParam<Broken> {};

TEST_P(EveryBrokenShard, IsRefusedWithThePlaceNamed) {
  const test::TempFolder folder;
  const auto path = folder / "p.h5";
  test::ShardContent content;
  content.requests = {{"a", {{{5, 6, 7}}, {{}}, {{8}}}}, {"b", {{{1, 2}}}}};
  write_shard(path, content);
  ASSERT_NO_THROW(PromptShard{path});
  {
    Hdf5Editor file(path);
    GetParam().edit(file);
  }
  auto parts = GetParam().message;
  parts.push_back(path.string());
  test::expect_error<InputError>([&] { PromptShard{path}; }, parts);
}

INSTANTIATE_TEST_SUITE_P(Refused, EveryBrokenShard, testing::ValuesIn(broken_shards),
                         [](const auto& broken) { return broken.param.name; });

TEST(RefusedShard, IsNotThereOrNoFile) {
  const test::TempFolder folder;
  test::expect_error<InputError>([&] { PromptShard{folder / "p.h5"}; },
                                 {(folder / "p.h5").string(), "No such file"});
  test::expect_error<InputError>([&] { PromptShard{folder.path()}; },
                                 {folder.path().string(), "is a folder"});
}

TEST(RefusedShard, IsNoHdf5) {
  const test::TempFolder folder;
  std::ofstream(folder / "p.h5") << "{\"prompt\": \"Call me Ishmael.\"}";
  test::expect_error<InputError>([&] { PromptShard{folder / "p.h5"}; },
                                 {(folder / "p.h5").string(), "no HDF5 file", "pecia-pack"});
}

TEST(RefusedShard, IsCutOffAnywhere) {
  const test::TempFolder folder;
  const auto path = folder / "p.h5";
  test::ShardContent content;
  content.requests = {{"a", {{Int32s(5000, 7)}}}};
  write_shard(path, content);
  const auto whole = std::filesystem::file_size(path);
  for (const double part : {0.999, 0.9, 0.5, 0.1, 0.01, 0.0}) {
    std::filesystem::resize_file(path, static_cast<uintmax_t>(part * static_cast<double>(whole)));
    test::expect_error<InputError>([&] { PromptShard{path}; }, {path.string()});
  }
}

TEST(PromptShard, RefusesTurnsOfAnotherShard) {
  const test::TempFolder folder;
  test::ShardContent content;
  content.requests = {{"a", {{{5, 6, 7}}}}};
  write_shard(folder / "p.h5", content);
  const PromptShard shard(folder / "p.h5");
  PromptTurn turn;
  turn.token_end = 4;
  EXPECT_THROW(shard.tokens(turn), InvalidArgument);
}

}  // namespace
}  // namespace pecia::io
