// SPDX-License-Identifier: Apache-2.0
/// What reproducible: layout takes and what it refuses, as a run finds out.

#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::resources {
namespace {

job::Job layout_job(const std::vector<std::string>& settings) {
  std::vector<std::string> all = {"reproducible=layout"};
  all.insert(all.end(), settings.begin(), settings.end());
  return job::parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", all);
}

model::ModelConfig model_of(int64_t num_heads, int64_t num_kv_heads, int64_t ffn) {
  model::ModelConfig config;
  config.vocab = 96, config.hidden = 64, config.ffn = ffn, config.layers = 2;
  config.num_heads = num_heads, config.num_kv_heads = num_kv_heads, config.head_dim = 8;
  return config;
}

const model::ModelConfig wide = model_of(48, 8, 96), nine = model_of(9, 3, 48);

std::string refusal(const std::vector<std::string>& settings, const model::ModelConfig& config,
                    int ranks) {
  Resources resources;
  try {
    resolve_grid(layout_job(settings), config, ranks, resources);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(LayoutRules, TakeEveryGridOfPowersOfTwoUpToEight) {
  for (const int cp : {1, 2, 4, 8})
    for (const int sp : {1, 2, 4, 8})
      for (const int tp : {1, 2, 4, 8})
        EXPECT_EQ(refusal({fmt::format("parallel.cp={}", cp), fmt::format("parallel.sp={}", sp),
                           fmt::format("parallel.tp={}", tp)},
                          model_of(64, 64, 4096), cp * sp * tp),
                  "");
}

TEST(LayoutRules, TakeAnySp) {
  EXPECT_EQ(refusal({"parallel.sp=3"}, nine, 3), "");
  EXPECT_EQ(refusal({"parallel.sp=3", "parallel.cp=2"}, nine, 6), "");
}

TEST(LayoutRules, RefuseWhatWouldShowInTheBits) {
  EXPECT_EQ(refusal({"parallel.cp=3"}, wide, 3),
            "parallel.cp 3 does not divide the 8 virtual ranks of reproducible: layout: use cp 1, "
            "2, 4 or 8, and dp for more ranks");
  EXPECT_EQ(refusal({"parallel.tp=16"}, wide, 16),
            "parallel.tp 16 does not divide 8, the 48 query heads and the FFN's 96 columns, which "
            "reproducible: layout needs: use tp 8");
  EXPECT_EQ(refusal({"parallel.tp=3"}, nine, 3),
            "parallel.tp 3 does not divide 8, the 9 query heads and the FFN's 48 columns, which "
            "reproducible: layout needs: use tp 1");
  EXPECT_EQ(refusal({"parallel.sp=3", "parallel.decode=shift"}, nine, 3),
            "parallel.decode shift cuts the weights over parallel.sp 3 × parallel.tp 1, which does "
            "not divide 8, the 9 query heads and the FFN's 48 columns, which reproducible: layout "
            "needs: use decode sp");
}

/// The same grids without it.
TEST(LayoutRules, AreForTheModeAlone) {
  for (const auto& [setting, ranks] : {std::pair{"parallel.cp=3", 3}, {"parallel.tp=16", 16}})
    EXPECT_EQ(refusal({setting, "reproducible=run"}, wide, ranks), "");
  EXPECT_EQ(refusal({"parallel.sp=3", "parallel.decode=shift", "reproducible=run"}, nine, 3), "");
}

TEST(LayoutRules, LeaveAutoWhatTheyTake) {
  Resources resources;
  resolve_grid(layout_job({"parallel.sp=3"}), nine, 3, resources);
  EXPECT_EQ(resources.decode, parallel::DecodeMode::sp);
  EXPECT_EQ(resources.reasons.text(),
            "prefill ulysses: the only one for SP 3; decode sp: shift over 3 ranks would not keep "
            "reproducible: layout");
  resolve_grid(layout_job({"parallel.sp=4"}), wide, 4, resources);
  EXPECT_EQ(resources.decode, parallel::DecodeMode::shift);
}

TEST(LayoutRules, HoldForTheRanksStarted) {
  Resources resources;
  EXPECT_THROW(resolve_grid(layout_job({}), wide, 6, resources), InputError);
  resolve_grid(layout_job({"parallel.dp=3"}), wide, 6, resources);
  EXPECT_EQ(resources.cp, 2);
  resolve_grid(layout_job({"reproducible=run"}), wide, 6, resources);
  EXPECT_EQ(resources.cp, 6);
}

TEST(LayoutRules, RefuseChunkedPrompts) {
  try {
    job::refuse_unimplemented(layout_job({"batch.policy=chunked"}));
    ADD_FAILURE() << "taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(
        error.what(),
        "batch.policy: chunked with reproducible: layout is not in this version: where a prompt "
        "is cut depends on what else is in the batch; use policy: prefill_first");
  }
  EXPECT_NO_THROW(job::refuse_unimplemented(layout_job({})));
}

TEST(LayoutRules, RefuseActivationsThatAreRoundedOnTheWay) {
  try {
    job::refuse_unimplemented(layout_job({"model.wire=bf16"}));
    ADD_FAILURE() << "taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "model.wire: bf16 with reproducible: layout: where sums are rounded depends on "
                 "the number of ranks; use wire: auto");
  }
  EXPECT_EQ(wire_of(layout_job({}), DType::bf16), DType::fp32);
  EXPECT_EQ(wire_of(layout_job({"reproducible=run"}), DType::bf16), DType::bf16);
  EXPECT_EQ(wire_of(layout_job({"reproducible=run"}), DType::fp32), DType::fp32);
  EXPECT_EQ(wire_of(layout_job({"reproducible=run", "model.wire=fp32"}), DType::bf16), DType::fp32);
}

}  // namespace
}  // namespace pecia::resources
