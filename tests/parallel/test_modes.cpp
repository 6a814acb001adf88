// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/ranks/parallel/modes.hpp"
#include "lib/ranks/parallel/modes_text.hpp"

namespace pecia::parallel {

void PrintTo(const ModePair& pair, std::ostream* out) {
  *out << "cp " << pair.degrees.cp << " sp " << pair.degrees.sp << " tp " << pair.degrees.tp
       << " ep " << pair.degrees.ep << ' ' << name_of(pair.prefill) << '+' << name_of(pair.decode);
}

namespace {

/// Legality from what each mode is, without the table.
bool is_legal(const ModePair& pair, const ModelShape& model, Reproducible reproducible) {
  const auto [cp, sp, tp, ep] = pair.degrees;
  if (ep != 1 && (ep != sp * tp || model.experts < ep || reproducible == Reproducible::layout))
    return false;
  const int64_t both = int64_t{sp} * tp;
  const int64_t ffn = ep == 1 ? model.ffn : model.dense_ffn;  // what TP cuts
  if (model.num_heads % both != 0 || ffn % tp != 0) return false;
  for (const int64_t kv_heads : {model.num_kv_heads, model.full_kv_heads}) {
    if (kv_heads == 0) continue;  // no layers have others
    if (kv_heads % both != 0 && both % kv_heads != 0) return false;
    if (kv_heads % tp != 0 && tp % kv_heads != 0) return false;
  }
  if (reproducible == Reproducible::layout) {
    const int64_t parts = pair.decode == DecodeMode::shift ? both : tp;
    if (8 % cp != 0 || 8 % parts != 0 || ffn % parts != 0) return false;
  }
  const bool alone = cp == 1 && sp == 1 && tp == 1;
  const auto prefill = [&] {
    switch (pair.prefill) {
      case PrefillMode::single:
        return alone;
      case PrefillMode::ring:
        return sp == 1 && cp > 1;
      case PrefillMode::ulysses:
        return cp == 1 && (sp > 1 || tp > 1);
      case PrefillMode::usp:
        return cp > 1 && sp > 1;
      case PrefillMode::sp_tp:
        return tp > 1;
      case PrefillMode::tp:
        return tp > 1 && cp == 1 && sp == 1;
    }
    return false;
  };
  const auto decode = [&] {
    switch (pair.decode) {
      case DecodeMode::single:
        return alone;
      case DecodeMode::pass_q:
      case DecodeMode::broadcast_q:
        return cp > 1;
      case DecodeMode::sp:
        return sp > 1 && cp == 1;
      case DecodeMode::tp:
        return tp > 1 && cp == 1 && sp == 1;
      case DecodeMode::shift:
        return sp > 1 && cp == 1 && ffn % both == 0;
    }
    return false;
  };
  return prefill() && decode();
}

constexpr PrefillMode all_prefill[]{PrefillMode::single, PrefillMode::ring,  PrefillMode::ulysses,
                                    PrefillMode::usp,    PrefillMode::sp_tp, PrefillMode::tp};
constexpr DecodeMode all_decode[]{DecodeMode::single, DecodeMode::pass_q, DecodeMode::broadcast_q,
                                  DecodeMode::sp,     DecodeMode::tp,     DecodeMode::shift};

const ModelShape mha{.num_heads = 12, .num_kv_heads = 12, .ffn = 48};
const ModelShape gqa{.num_heads = 9, .num_kv_heads = 3, .ffn = 1536};
const ModelShape wide{.num_heads = 64, .num_kv_heads = 8, .ffn = 28672};
const ModelShape mqa{.num_heads = 8, .num_kv_heads = 1, .ffn = 12};
/// Experts whose columns no rank but one and three divide, beside dense layers; experts alone.
const ModelShape dense_too{
    .num_heads = 24, .num_kv_heads = 6, .ffn = 3, .experts = 6, .dense_ffn = 96};
const ModelShape experts_alone{
    .num_heads = 64, .num_kv_heads = 8, .ffn = 2880, .experts = 32, .dense_ffn = 0};
/// Layers with 3 KV heads beside others with 4.
const ModelShape two_kinds{.num_heads = 24, .num_kv_heads = 4, .full_kv_heads = 3, .ffn = 96};
const ModelShape odd{.num_heads = 36, .num_kv_heads = 6, .ffn = 100};

class EveryModel : public testing::TestWithParam<ModelShape> {};

void expect_legal_modes(int ranks, const ModelShape& model, Reproducible reproducible) {
  std::vector<ModePair> expected;
  for (int cp = ranks; cp >= 1; --cp)
    for (int sp = ranks; sp >= 1; --sp)
      for (int tp = 1; tp <= ranks; ++tp)
        for (const PrefillMode prefill : all_prefill)
          for (const DecodeMode decode : all_decode) {
            if (cp * sp * tp != ranks) continue;
            for (const int ep : {1, 2, 3, sp * tp}) {
              const ModePair pair{{cp, sp, tp, ep}, prefill, decode};
              const bool legal = is_legal(pair, model, reproducible);
              EXPECT_EQ(!refusal({pair.degrees, prefill, {}, decode, {}, reproducible}, model),
                        legal)
                  << testing::PrintToString(pair);
              if (legal && std::ranges::find(expected, pair) == expected.end())
                expected.push_back(pair);
            }
          }
  EXPECT_THAT(legal_modes(ranks, model, reproducible),
              testing::UnorderedElementsAreArray(expected));
}

TEST_P(EveryModel, HasTheModesThatTheirMeaningsGive) {
  for (int ranks = 1; ranks <= 24; ++ranks)
    for (const Reproducible reproducible : {Reproducible::run, Reproducible::layout}) {
      SCOPED_TRACE(reproducible == Reproducible::run ? "run" : "layout");
      expect_legal_modes(ranks, GetParam(), reproducible);
    }
}

std::vector<int> numbers_in(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    if (std::isdigit(static_cast<unsigned char>(word[0]))) numbers.push_back(std::stoi(word));
  return numbers;
}

TEST_P(EveryModel, IsRecommendedDegreesThatItTakesOnTheSameRanks) {
  int refused = 0;
  for (int ranks = 1; ranks <= 24; ++ranks)
    for (const Degrees& degrees : grids_of(ranks)) {
      const auto first = refusal({degrees, {}, {}, {}, {}}, GetParam());
      if (!first) continue;
      ++refused;
      const auto values = numbers_in(first->nearest);
      ASSERT_FALSE(values.empty()) << first->text();
      for (const int value : values) {
        Degrees other = degrees;
        (first->key == "parallel.tp" ? other.tp : other.sp) = value;
        ASSERT_EQ(ranks % (other.sp * other.tp), 0) << first->text();
        other.cp = ranks / (other.sp * other.tp);
        const auto second = refusal({other, {}, {}, {}, {}}, GetParam());
        EXPECT_TRUE(!second || second->key != first->key)
            << first->text() << ", " << second->text();
      }
    }
  EXPECT_GT(refused, 20);
}

TEST(AttentionExchange, HasAWordOfItsOwn) {
  EXPECT_EQ(name_of(AttentionExchange::pass_kv), "pass_kv");
  EXPECT_EQ(name_of(AttentionExchange::pass_q), "pass_q");
  EXPECT_EQ(name_of(AttentionExchange::broadcast_q), "broadcast_q");
}

TEST_P(EveryModel, IsToldTheSameInJson) {
  for (const int ranks : {1, 4, 6}) {
    std::vector<ModePair> legal;
    for (const auto& pair : modes_json(ranks, GetParam())) {
      EXPECT_NE(pair["legal"].get<bool>(), pair["reason"].is_string()) << pair;
      const auto is = [](std::string_view word) {
        return [=](auto m) { return name_of(m) == word; };
      };
      const auto prefill = pair["prefill"].get<std::string>(),
                 decode = pair["decode"].get<std::string>();
      if (pair["legal"])
        legal.push_back({{pair["cp"], pair["sp"], pair["tp"], pair["ep"]},
                         *std::find_if(std::begin(all_prefill), std::end(all_prefill), is(prefill)),
                         *std::find_if(std::begin(all_decode), std::end(all_decode), is(decode))});
    }
    EXPECT_THAT(legal, testing::UnorderedElementsAreArray(legal_modes(ranks, GetParam())));
  }
}

INSTANTIATE_TEST_SUITE_P(OfTheTable, EveryModel,
                         testing::Values(mha, gqa, wide, mqa, odd, two_kinds, dense_too,
                                         experts_alone));

struct Refused {
  Setting setting;
  ModelShape model;
  const char* key;
  const char* text;
};

void PrintTo(const Refused& refused, std::ostream* out) {
  *out << refused.text;
}

class EveryReason : public testing::TestWithParam<Refused> {};

TEST_P(EveryReason, NamesKeyValueReasonAndTheNearestSetting) {
  const auto refused = refusal(GetParam().setting, GetParam().model);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->key, GetParam().key);
  EXPECT_EQ(refused->text(), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    Degrees, EveryReason,
    testing::Values(
        Refused{{{3, 2, 1}, {}, {}, {}, {}},
                gqa,
                "parallel.sp",
                "parallel.sp 2 does not divide the 9 query heads: use sp 1 or 3"},
        Refused{{{1, 2, 1}, {}, {}, {}, {}},
                gqa,
                "parallel.sp",
                "parallel.sp 2 does not divide the 9 query heads: use sp 1"},
        Refused{{{1, 6, 4}, {}, {}, {}, {}},
                mha,
                "parallel.sp",
                "parallel.sp 6 × parallel.tp 4 does not divide the 12 query heads: use sp 3"},
        Refused{{{1, 4, 1}, {}, {}, {}, {}},
                odd,
                "parallel.sp",
                "parallel.sp 4 neither divides the 6 KV heads nor is a multiple of them: use sp 2"},
        Refused{{{1, 1, 4}, {}, {}, {}, {}},
                odd,
                "parallel.tp",
                "parallel.tp 4 neither divides the 6 KV heads nor is a multiple of them: use tp 2"},
        Refused{{{3, 1, 4}, {}, {}, {}, {}},
                gqa,
                "parallel.tp",
                "parallel.tp 4 does not divide the 9 query heads: use tp 3"},
        Refused{{{1, 1, 8}, {}, {}, {}, {}},
                mqa,
                "parallel.tp",
                "parallel.tp 8 does not divide the FFN's 12 columns: use tp 4"}));

INSTANTIATE_TEST_SUITE_P(
    DealtExperts, EveryReason,
    testing::Values(
        Refused{{{1, 2, 1, 2}, {}, {}, {}, {}},
                mha,
                "parallel.ep",
                "parallel.ep 2 deals out experts, and this model has none: use ep 1"},
        Refused{{{2, 2, 2, 2}, {}, {}, {}, {}},
                experts_alone,
                "parallel.ep",
                "parallel.ep 2 is neither 1 nor the 4 ranks of parallel.sp 2 × parallel.tp 2: use "
                "ep 1 or 4"},
        Refused{{{2, 1, 1, 2}, {}, {}, {}, {}},
                experts_alone,
                "parallel.ep",
                "parallel.ep 2 is neither 1 nor the 1 ranks of parallel.sp 1 × parallel.tp 1: use "
                "ep 1"},
        Refused{{{1, 4, 3, 12}, {}, {}, {}, {}},
                dense_too,
                "parallel.ep",
                "parallel.ep 12 leaves ranks without any of the 6 experts: use ep 1"},
        Refused{{{1, 2, 1, 2}, {}, {}, {}, {}, Reproducible::layout},
                experts_alone,
                "parallel.ep",
                "parallel.ep 2 adds the results of each rank's experts first, and reproducible: "
                "layout needs an order that no layout changes: use ep 1"}));

INSTANTIATE_TEST_SUITE_P(
    Modes, EveryReason,
    testing::Values(
        Refused{
            {{1, 1, 1}, PrefillMode::ring, {}, {}, {}},
            mha,
            "parallel.prefill",
            "parallel.prefill ring needs cp above 1, sp 1, but a replica is one rank: use prefill "
            "auto"},
        Refused{
            {{2, 2, 1}, PrefillMode::ulysses, {}, {}, {}},
            mha,
            "parallel.prefill",
            "parallel.prefill ulysses needs cp 1, sp or tp above 1, but the grid is CP 2 × SP 2: "
            "use prefill usp"},
        Refused{
            {{1, 1, 2}, PrefillMode::usp, {}, {}, {}},
            mha,
            "parallel.prefill",
            "parallel.prefill usp needs cp above 1, sp above 1, but the grid is TP 2: use prefill "
            "tp, sp_tp or ulysses"},
        Refused{{{2, 1, 1}, PrefillMode::single, {}, {}, {}},
                mha,
                "parallel.prefill",
                "parallel.prefill single needs one rank, but the grid is CP 2: use prefill ring"},
        Refused{
            {{1, 1, 1}, {}, {}, DecodeMode::pass_q, {}},
            mha,
            "parallel.decode",
            "parallel.decode pass_q needs cp above 1, but a replica is one rank: use decode auto"},
        Refused{{{2, 1, 1}, {}, {}, DecodeMode::shift, {}},
                mha,
                "parallel.decode",
                "parallel.decode shift needs cp 1, sp above 1, but the grid is CP 2: use decode "
                "pass_q or broadcast_q"},
        Refused{{{1, 2, 2}, {}, {}, DecodeMode::tp, {}},
                mha,
                "parallel.decode",
                "parallel.decode tp needs cp 1, sp 1, tp above 1, but the grid is SP 2 × TP 2: use "
                "decode sp or shift"},
        Refused{
            {{1, 6, 1}, {}, {}, DecodeMode::shift, {}},
            odd,
            "parallel.decode",
            "parallel.decode shift cuts the FFN's 100 columns over parallel.sp 6 × parallel.tp 1, "
            "which does not divide them: use decode sp"}));

INSTANTIATE_TEST_SUITE_P(
    RingAndThreshold, EveryReason,
    testing::Values(
        Refused{{{1, 1, 1}, {}, AttentionExchange::pass_q, {}, {}},
                mha,
                "parallel.ring",
                "parallel.ring pass_q needs cp above 1, but a replica is one rank: use ring auto"},
        Refused{{{1, 2, 1}, {}, AttentionExchange::pass_kv, {}, {}},
                mha,
                "parallel.ring",
                "parallel.ring pass_kv needs cp above 1, but the grid is SP 2: use ring auto"},
        Refused{{{2, 1, 1}, {}, {}, {}, 64},
                mha,
                "parallel.shift_threshold",
                "parallel.shift_threshold 64 belongs to decode shift, but decode is pass_q: use "
                "shift_threshold auto"},
        Refused{{{1, 2, 1}, {}, {}, DecodeMode::sp, 64},
                mha,
                "parallel.shift_threshold",
                "parallel.shift_threshold 64 belongs to decode shift, but decode is sp: use "
                "shift_threshold auto"},
        Refused{{{1, 6, 1}, {}, {}, {}, 64},
                odd,
                "parallel.shift_threshold",
                "parallel.shift_threshold 64 belongs to decode shift, but decode is sp: use "
                "shift_threshold auto"},
        Refused{{{1, 2, 1}, {}, {}, {}, 0},
                mha,
                "parallel.shift_threshold",
                "parallel.shift_threshold 0 lets no pass shift: use shift_threshold 1 or more"}));

TEST(Refusal, TakesARingWhereverTokensAreCut) {
  for (const Degrees& degrees : {Degrees{2, 1, 1}, Degrees{2, 2, 1}, Degrees{2, 1, 2}})
    for (const AttentionExchange ring : named_ring_modes)
      EXPECT_FALSE(refusal({degrees, {}, ring, {}, {}}, mha)) << to_string(degrees);
}

TEST(Refusal, TakesAThresholdWhereDecodeShifts) {
  EXPECT_FALSE(refusal({{1, 2, 1}, {}, {}, {}, 1}, mha));
  EXPECT_FALSE(refusal({{1, 2, 2}, {}, {}, DecodeMode::shift, INT64_MAX}, mha));
}

TEST(RowRanks, AreThoseThatRowsAreCutOver) {
  EXPECT_EQ(row_ranks({1, 1, 1}, PrefillMode::single), 1);
  EXPECT_EQ(row_ranks({4, 1, 2}, PrefillMode::ring), 4);
  EXPECT_EQ(row_ranks({2, 3, 2}, PrefillMode::usp), 6);
  EXPECT_EQ(row_ranks({2, 3, 2}, PrefillMode::sp_tp), 12);
  EXPECT_EQ(row_ranks({1, 1, 4}, PrefillMode::tp), 1);
  EXPECT_EQ(row_ranks({1, 3, 2}, PrefillMode::ulysses), 3) << "the weights stay cut";
  EXPECT_EQ(row_ranks({1, 1, 4}, PrefillMode::ulysses), 4) << "the weights are gathered";
}

TEST(KvHeadsOfRank, AreAShareOrOneThatSeveralHold) {
  EXPECT_EQ(kv_heads_of_rank({4, 1, 1}, 8), 8) << "CP cuts tokens";
  EXPECT_EQ(kv_heads_of_rank({1, 2, 2}, 8), 2);
  EXPECT_EQ(kv_heads_of_rank({1, 4, 4}, 8), 1);
  EXPECT_EQ(kv_heads_of_rank({1, 1, 2}, 1), 1);
}

TEST(ModesText, HasALineForEachGrid) {
  EXPECT_EQ(
      modes_text(4, odd),
      "    cp     sp     tp  prefill              decode\n"
      "     4      1      1  ring                 pass_q, broadcast_q\n"
      "     2      2      1  usp                  pass_q, broadcast_q\n"
      "     2      1      2  ring, sp_tp          pass_q, broadcast_q\n"
      "     1      4      1  none: parallel.sp 4 neither divides the 6 KV heads nor is a "
      "multiple of them: use sp 2\n"
      "     1      2      2  none: parallel.sp 2 × parallel.tp 2 neither divides the 6 KV heads "
      "nor is a multiple of them: use sp 1\n"
      "     1      1      4  none: parallel.tp 4 neither divides the 6 KV heads nor is a "
      "multiple of them: use tp 2\n");
  EXPECT_NE(
      modes_text(6, odd).find("ulysses              sp; parallel.decode shift cuts the FFN's"),
      std::string::npos);
  EXPECT_NE(modes_text(3, odd, Reproducible::layout)
                .find("     3      1      1  none: parallel.cp 3 does not divide the 8 virtual"),
            std::string::npos);
}

TEST(ModesFile, IsWhatTheTableGives) {
  std::ostringstream text;
  text << std::ifstream(PECIA_MODES_FILE).rdbuf();
  EXPECT_EQ(text.str(), modes_markdown()) << "pecia plan --modes > lib/ranks/parallel/modes.md";
}

}  // namespace
}  // namespace pecia::parallel
