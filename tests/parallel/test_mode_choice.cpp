// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/parallel/mode_choice.hpp"

namespace pecia::parallel {
namespace {

/// Attention alone, each query head with a KV head, E = Hq·D = 64.
const ModelShape mha_attention{
    .num_heads = 8, .num_kv_heads = 8, .ffn = 0, .hidden = 64, .head_dim = 8};

TEST(GatherThreshold, IsAbsentOnTwoRanksForAttentionAlone) {
  EXPECT_EQ(gather_threshold(mha_attention, 2), std::nullopt);
}

TEST(GatherThreshold, IsTheSourcesNumberOfTokens) {
  // T > 2·E·N/(N−2)
  EXPECT_EQ(gather_threshold(mha_attention, 4), 257);
  EXPECT_EQ(gather_threshold(mha_attention, 3), 385);
}

TEST(GatherThreshold, CountsAnFfnOnBothSides) {
  // N = 2: T > 2·E + 1.5·F
  ModelShape model = mha_attention;
  model.ffn = 128;
  EXPECT_EQ(gather_threshold(model, 2), 321);
}

TEST(GatherThreshold, CountsAKvHeadForEachRankThatHoldsIt) {
  // 2 KV heads on 4 ranks: W = 64·2·(8 + 2)·8 = 10240; rows 2·64·T; heads 2·(8 + 4)·8·T/4 = 48·T.
  ModelShape model = mha_attention;
  model.num_kv_heads = 2;
  EXPECT_EQ(gather_threshold(model, 4), 129);
}

struct Chosen {
  Degrees degrees;
  int64_t max_batch_tokens;
  PrefillMode prefill;
  DecodeMode decode;
  const char* why;
};

void PrintTo(const Chosen& chosen, std::ostream* out) {
  *out << to_string(chosen.degrees) << ", " << chosen.max_batch_tokens << " tokens";
}

/// Gathering its weights pays on 4 ranks above 2·64·(8+8)·8 + 3·64·128 = 40960 over
/// 4·64 − 2·16·8/4 = 192, that is 213.3 tokens.
const ModelShape small{.num_heads = 8, .num_kv_heads = 8, .ffn = 128, .hidden = 64, .head_dim = 8};

class EveryChoice : public testing::TestWithParam<Chosen> {};

TEST_P(EveryChoice, HasAReasonForEachModeThatWasAuto) {
  const Setting setting{GetParam().degrees, {}, {}, {}, {}};
  const ModeChoice choice = choose_modes(setting, small, GetParam().max_batch_tokens);
  EXPECT_EQ(choice.prefill, GetParam().prefill);
  EXPECT_EQ(choice.decode, GetParam().decode);
  EXPECT_FALSE(choice.ring);
  EXPECT_EQ(choice.reasons.text(), GetParam().why);
}

INSTANTIATE_TEST_SUITE_P(
    OfARule, EveryChoice,
    testing::Values(
        Chosen{{1, 1, 1}, 4096, PrefillMode::single, DecodeMode::single, ""},
        Chosen{{3, 1, 1},
               4096,
               PrefillMode::ring,
               DecodeMode::pass_q,
               "prefill ring: the only one for CP 3; ring auto: by the cached share of each turn; "
               "decode pass_q: no more serial steps than broadcast_q below CP 4"},
        Chosen{
            {4, 1, 2},
            4096,
            PrefillMode::ring,
            DecodeMode::broadcast_q,
            "prefill ring: sp_tp moves as much and saves only memory of activations; ring auto: by "
            "the cached share of each turn; decode broadcast_q: fewer serial steps than pass_q "
            "from CP 4 on"},
        Chosen{
            {2, 2, 2},
            4096,
            PrefillMode::usp,
            DecodeMode::pass_q,
            "prefill usp: sp_tp moves as much and saves only memory of activations; ring auto: by "
            "the cached share of each turn; decode pass_q: no more serial steps than broadcast_q "
            "below CP 4"},
        Chosen{{1, 2, 2},
               4096,
               PrefillMode::ulysses,
               DecodeMode::shift,
               "prefill ulysses: sp_tp moves as much and saves only memory of activations; decode "
               "shift: heads and FFN can be cut over all 4 ranks when few tokens run"},
        Chosen{{1, 1, 4},
               3,
               PrefillMode::tp,
               DecodeMode::tp,
               "prefill tp: a pass of 3 tokens has no row for each of 4 ranks; decode tp: the only "
               "one for TP 4"},
        Chosen{{1, 1, 4},
               213,
               PrefillMode::sp_tp,
               DecodeMode::tp,
               "prefill sp_tp: in passes of 213 tokens gathering the weights moves no less than "
               "gathering the rows; decode tp: the only one for TP 4"},
        Chosen{{1, 1, 4},
               214,
               PrefillMode::ulysses,
               DecodeMode::tp,
               "prefill ulysses: from 214 tokens on gathering the weights moves less than "
               "gathering the "
               "rows, as sp_tp does in shorter passes; decode tp: the only one for TP 4"}));

TEST(ChooseModes, TakesSpWhereTheFfnCannotShift) {
  ModelShape model = small;
  model.ffn = 127;
  const ModeChoice choice = choose_modes({{1, 2, 1}, {}, {}, {}, {}}, model, 4096);
  EXPECT_EQ(choice.decode, DecodeMode::sp);
  EXPECT_EQ(
      choice.reasons.text(),
      "prefill ulysses: the only one for SP 2; decode sp: shift would cut the FFN's 127 columns "
      "over 2 ranks");
}

TEST(ChooseModes, LeavesShortPassesToSpTp) {
  const Setting setting{{1, 1, 4}, {}, {}, {}, {}};
  EXPECT_EQ(choose_modes(setting, small, 213).gather_threshold, std::nullopt);
  EXPECT_EQ(choose_modes(setting, small, 5000).gather_threshold, 214);
  Setting said = setting;
  said.prefill = PrefillMode::ulysses;
  EXPECT_EQ(choose_modes(said, small, 5000).gather_threshold, std::nullopt) << "all passes gather";
  said.gather_threshold = 7;
  EXPECT_EQ(choose_modes(said, small, 5000).gather_threshold, 7);
}

TEST(ChooseModes, LeavesWhatTheJobSays) {
  const ModeChoice choice = choose_modes(
      {{4, 1, 2}, PrefillMode::sp_tp, AttentionExchange::pass_q, DecodeMode::pass_q, {}}, small,
      4096);
  EXPECT_EQ(choice.prefill, PrefillMode::sp_tp);
  EXPECT_EQ(choice.ring, AttentionExchange::pass_q);
  EXPECT_EQ(choice.decode, DecodeMode::pass_q);
  EXPECT_EQ(choice.reasons.text(), "");
}

TEST(ChooseModes, ChoosesWhatIsLegal) {
  int grids = 0;
  for (int ranks = 1; ranks <= 32; ++ranks)
    for (const Degrees& degrees : grids_of(ranks)) {
      if (refusal({degrees, {}, {}, {}, {}}, small)) continue;
      ++grids;
      for (const int64_t tokens : {1, 100, 100000}) {
        const ModeChoice choice = choose_modes({degrees, {}, {}, {}, {}}, small, tokens);
        EXPECT_FALSE(refusal({degrees, choice.prefill, {}, choice.decode, {}}, small))
            << to_string(degrees);
      }
    }
  EXPECT_GT(grids, 32);
}

}  // namespace
}  // namespace pecia::parallel
