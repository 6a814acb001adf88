// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::job {
namespace {

struct Absent {
  const char* setting;
  const char* message;
};

void PrintTo(const Absent& absent, std::ostream* out) {
  *out << absent.setting;
}

Job job_with(const std::string& setting) {
  return parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", {setting});
}

class EveryAbsentFeature : public testing::TestWithParam<Absent> {};

TEST_P(EveryAbsentFeature, IsRefusedByNameWithTheNearestSetting) {
  const Job job = job_with(GetParam().setting);
  try {
    refuse_unimplemented(job);
    FAIL() << GetParam().setting << " was taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfThisVersion, EveryAbsentFeature,
    testing::Values(
        Absent{"backend=cuda",
               "backend: cuda: this pecia was built without CUDA; use backend: cpu, or build the "
               "preset cuda"},
        Absent{"model.dtype=fp8",
               "model.dtype: fp8 is for GPUs in this version; use dtype: bf16, or backend: cuda"},
        Absent{"model.dtype={ffn: fp8}",
               "model.dtype: fp8 is for GPUs in this version; use dtype: bf16, or backend: cuda"},
        Absent{"model.compute=fp8",
               "model.compute: fp8 multiplies weights of that type alone; use model.dtype: fp8, or "
               "compute: auto"}));

Job csa_with(const std::vector<std::string>& settings) {
  return parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\nattention: {sparse: csa}\n",
                   "job.yaml", settings);
}

INSTANTIATE_TEST_SUITE_P(
    OfAttentionWithoutCsa, EveryAbsentFeature,
    testing::Values(
        Absent{"attention.geometry=nested",
               "attention.geometry: nested needs attention.sparse: csa; without it use geometry: "
               "disjoint"},
        Absent{"attention.levels=2",
               "attention.levels: 2 needs attention.sparse: csa; without it use levels: auto"},
        Absent{"attention.drop=0.5",
               "attention.drop: 0.5 needs attention.sparse: csa; without it use drop: auto"},
        Absent{"attention.drop=0",
               "attention.drop: 0.0 needs attention.sparse: csa; without it use drop: auto"},
        Absent{"attention.drop={file: tuned.json}",
               "attention.drop: {file: tuned.json} needs attention.sparse: csa; without it use "
               "drop: auto"},
        Absent{"attention.pipeline=16",
               "attention.pipeline: 16 needs attention.sparse: csa; without it use pipeline: auto"},
        Absent{"attention.first_tokens=0",
               "attention.first_tokens: 0 needs attention.sparse: csa; without it use "
               "first_tokens: auto"},
        Absent{"attention.objective={loss: 0}",
               "attention.objective: {loss: 0.0} needs attention.sparse: csa; without it use "
               "objective: off"},
        Absent{"attention.objective={ttft: 90}",
               "attention.objective: {ttft: 90s} needs attention.sparse: csa; without it use "
               "objective: off"},
        Absent{"attention.decode=sparse",
               "attention.decode: sparse needs attention.sparse: csa; without it use decode: "
               "dense"}));

TEST(RefuseUnimplemented, NamesElasticTeamsBesideTheSameBitsInEveryLayout) {
  const Job job = parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml",
                            {"parallel.cp=elastic", "reproducible=layout"});
  try {
    refuse_unimplemented(job);
    FAIL() << "it was taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "parallel.cp: elastic with reproducible: layout is not in this version: teams cut "
                 "sequences by what else runs; use cp: auto, or reproducible: run");
  }
}

TEST(RefuseUnimplemented, NamesLoongServesStepsWhereTheyHaveNothingToDeal) {
  const auto refusal = [](const std::vector<std::string>& settings) -> std::string {
    try {
      refuse_unimplemented(
          parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", settings));
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "it was taken";
  };
  EXPECT_EQ(
      refusal({"parallel.scheduler=loongserve", "parallel.cp=2"}),
      "parallel.scheduler: loongserve deals requests to teams that change; use cp: elastic, or "
      "scheduler: auto");
  EXPECT_EQ(
      refusal({"parallel.scheduler=loongserve", "parallel.cp=elastic", "batch.policy=chunked"}),
      "parallel.scheduler: loongserve reads the prompts of a batch by themselves; use policy: "
      "prefill_first, or scheduler: greedy");
  EXPECT_EQ(refusal({"parallel.scheduler=loongserve", "parallel.cp=elastic"}), "it was taken");
  EXPECT_EQ(refusal({"parallel.scheduler=greedy", "parallel.cp=elastic", "batch.policy=chunked"}),
            "it was taken");
}

TEST(RefuseUnimplemented, NamesTimesBetweenTokensBesideTheSameBitsInEveryLayout) {
  const Job job = parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml",
                            {"batch.objective={tbt: 50ms}", "reproducible=layout"});
  try {
    refuse_unimplemented(job);
    FAIL() << "it was taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "batch.objective: {tbt: …} with reproducible: layout is not in this version: "
                 "prompts are cut by time, and same bits need cuts at the same tokens; use "
                 "objective: auto, or reproducible: run");
  }
}

class EveryAbsentFeatureOfCsa : public testing::TestWithParam<Absent> {};

TEST_P(EveryAbsentFeatureOfCsa, IsRefusedByNameWithTheNearestSetting) {
  const Job job = csa_with({GetParam().setting});
  try {
    refuse_unimplemented(job);
    FAIL() << GetParam().setting << " was taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfThisVersion, EveryAbsentFeatureOfCsa,
    testing::Values(
        Absent{"attention.objective={loss: 0.01}",
               "attention.objective: {loss: 0.01} needs a tuned file: use attention.drop: {file: "
               "tuned.json} with one that pecia tune wrote, or objective: off"},
        Absent{"attention.objective={ttft: 30s}",
               "attention.objective: {ttft: 30s} needs a tuned file: use attention.drop: {file: "
               "tuned.json} with one that pecia tune wrote, or objective: off"},
        Absent{"attention.decode=sparse",
               "attention.decode: sparse is not in this version: output tokens attend to all keys; "
               "use decode: dense"},
        Absent{"parallel.cp=elastic",
               "attention.sparse: csa with parallel.cp: elastic is not in this version: levels "
               "follow from the ranks' places, and teams change from pass to pass; use cp: auto, "
               "or sparse: off"},
        Absent{"parallel.ring=pass_q",
               "attention.sparse: csa with parallel.ring: pass_q is not in this version: csa sends "
               "keys, and pass_q leaves them where they are; use ring: auto"},
        Absent{"parallel.decode=sp",
               "attention.sparse: csa with parallel.decode: sp is not in this version: csa keeps "
               "keys with their tokens, and sp needs them by heads; use decode: auto"},
        Absent{"parallel.decode=shift",
               "attention.sparse: csa with parallel.decode: shift is not in this version: csa "
               "keeps keys with their tokens, and shift needs them by heads; use decode: auto"},
        Absent{"batch.policy=chunked",
               "attention.sparse: csa with batch.policy: chunked is not in this version: which "
               "tokens count is seen from a prompt's last rows, before which its chunks are read; "
               "use policy: prefill_first"},
        Absent{"batch.objective={tbt: 50ms}",
               "attention.sparse: csa with batch.objective: {tbt: …} is not in this version: which "
               "tokens count is seen from a prompt's last rows, before which its chunks are read; "
               "use objective: auto, or sparse: off"},
        Absent{"reproducible=layout",
               "attention.sparse: csa with reproducible: layout is not in this version: levels "
               "follow from the ranks' places, so each layout drops other tokens; use "
               "reproducible: run, or sparse: off"}));

TEST(RefuseUnimplemented, NamesFirstTokensBesideNestedLevels) {
  try {
    refuse_unimplemented(csa_with({"attention.geometry=nested", "attention.first_tokens=16"}));
    FAIL() << "it was taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "attention.first_tokens: 16 with geometry: nested is not in this version: nested "
                 "levels are as published, without tokens that all rows see; use geometry: "
                 "disjoint, or first_tokens: auto");
  }
}

TEST(RefuseUnimplemented, NamesWhatATunedFileWasNotMeasuredWith) {
  try {
    refuse_unimplemented(csa_with({"attention.drop={file: t.json}", "attention.first_tokens=16"}));
    FAIL() << "it was taken";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("measures with first_tokens: auto"), std::string::npos)
        << error.what();
  }
}

TEST(RefuseUnimplemented, TakesCsaWithTheSettingsItRecommends) {
  EXPECT_NO_THROW(refuse_unimplemented(csa_with({})));
  for (const char* setting : {"attention.geometry=disjoint",
                              "attention.geometry=nested",
                              "attention.levels=1",
                              "attention.levels=4",
                              "attention.drop=0",
                              "attention.drop=0.95",
                              "attention.drop={file: tuned.json}",
                              "attention.pipeline=16",
                              "attention.objective=off",
                              "attention.decode=dense",
                              "parallel.cp=auto",
                              "parallel.cp=4",
                              "parallel.prefill=auto",
                              "parallel.prefill=ulysses",
                              "parallel.prefill=ring",
                              "parallel.prefill=usp",
                              "parallel.prefill=sp_tp",
                              "parallel.prefill=tp",
                              "parallel.ring=auto",
                              "parallel.ring=pass_kv",
                              "parallel.decode=auto",
                              "parallel.decode=pass_q",
                              "parallel.decode=broadcast_q",
                              "parallel.decode=tp",
                              "batch.policy=prefill_first",
                              "reproducible=run"})
    EXPECT_NO_THROW(refuse_unimplemented(csa_with({setting}))) << setting;
}

TEST(RefuseUnimplemented, TakesTheDefaultsOfAttentionWithoutCsa) {
  for (const char* setting :
       {"attention.sparse=off", "attention.geometry=disjoint", "attention.levels=auto",
        "attention.drop=auto", "attention.pipeline=auto", "attention.objective=off",
        "attention.decode=dense"})
    EXPECT_NO_THROW(refuse_unimplemented(job_with(setting))) << setting;
}

TEST(RefuseUnimplemented, TakesTheSettingsItRecommends) {
  for (const char* setting :
       {"backend=cpu", "model.dtype=bf16", "model.dtype=int8", "model.dtype=int4",
        "model.compute=fp32", "model.compute=bf16", "kv.dtype=bf16", "kv.dtype=fp8",
        "batch.arrivals=replay", "reproducible=run", "reproducible=layout"})
    EXPECT_NO_THROW(refuse_unimplemented(job_with(setting))) << setting;
}

TEST(RefuseUnimplemented, LeavesParallelSettingsToTheTable) {
  for (const char* setting :
       {"parallel.sp=2", "parallel.tp=4", "parallel.prefill=usp", "parallel.ring=pass_q",
        "parallel.decode=shift", "parallel.shift_threshold=256", "batch.policy=chunked"})
    EXPECT_NO_THROW(refuse_unimplemented(job_with(setting))) << setting;
}

}  // namespace
}  // namespace pecia::job
