#include <gtest/gtest.h>

#include <tuple>

#include "lib/core/error.hpp"
#include "lib/runtime/job.hpp"
#include "lib/runtime/resources.hpp"

namespace pecia::runtime {
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
        Absent{"backend=cuda", "backend: cuda is not in this version; use backend: cpu"},
        Absent{"model.dtype=int8", "model.dtype: int8 is not in this version; use dtype: bf16"},
        Absent{"model.compute=bf16",
               "model.compute: bf16 is not in this version; use compute: fp32"},
        Absent{"kv.dtype=fp8", "kv.dtype: fp8 is not in this version; use dtype: bf16"},
        Absent{"batch.arrivals=replay",
               "batch.arrivals: replay is not in this version; use arrivals: ignore"},
        Absent{"reproducible=layout",
               "reproducible: layout is not in this version; use reproducible: run"}));

TEST(RefuseUnimplemented, TakesTheSettingsItRecommends) {
  for (const char* setting : {"backend=cpu", "model.dtype=bf16", "model.compute=fp32",
                              "kv.dtype=bf16", "batch.arrivals=ignore", "reproducible=run"})
    EXPECT_NO_THROW(refuse_unimplemented(job_with(setting))) << setting;
}

TEST(RefuseUnimplemented, LeavesParallelSettingsToTheTable) {
  for (const char* setting :
       {"parallel.sp=2", "parallel.tp=4", "parallel.prefill=usp", "parallel.ring=pass_q",
        "parallel.decode=shift", "parallel.shift_threshold=256", "batch.policy=chunked"})
    EXPECT_NO_THROW(refuse_unimplemented(job_with(setting))) << setting;
}

struct Unexecuted {
  const char* setting;
  parallel::Degrees degrees;
  const char* message;
};

void PrintTo(const Unexecuted& unexecuted, std::ostream* out) {
  *out << unexecuted.setting;
}

class EveryUnexecutedMode : public testing::TestWithParam<Unexecuted> {};

TEST_P(EveryUnexecutedMode, IsRefusedByNameWithTheNearestSetting) {
  const Job job = job_with(GetParam().setting);
  Resources resources;
  std::tie(resources.cp, resources.sp, resources.tp) =
      std::tie(GetParam().degrees.cp, GetParam().degrees.sp, GetParam().degrees.tp);
  try {
    refuse_unexecuted(job, resources);
    FAIL() << GetParam().setting << " was taken";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfThisVersion, EveryUnexecutedMode,
    testing::Values(
        Unexecuted{"parallel.sp=2",
                   {1, 2, 1},
                   "parallel.sp: 2 is not in this version; use sp: 1, and cp for a "
                   "sequence on more ranks"},
        Unexecuted{"parallel.tp=4",
                   {1, 1, 4},
                   "parallel.tp: 4 is not in this version; use tp: 1, and cp for a "
                   "sequence on more ranks"},
        Unexecuted{"parallel.ring=pass_q",
                   {2, 1, 1},
                   "parallel.ring: pass_q is not in this version; use ring: pass_kv"},
        Unexecuted{"parallel.decode=broadcast_q",
                   {2, 1, 1},
                   "parallel.decode: broadcast_q is not in this version; use decode: pass_q"},
        Unexecuted{"batch.policy=chunked",
                   {},
                   "batch.policy: chunked is not in this version; use policy: prefill_first"}));

TEST(RefuseUnexecuted, KeepsAutoToWhatIsExecuted) {
  Resources ring;
  ring.cp = 4;
  ring.prefill = PrefillMode::ring;
  ring.decode = DecodeMode::broadcast_q;
  refuse_unexecuted(job_with("parallel.prefill=ring"), ring);
  EXPECT_EQ(ring.ring, RingMode::pass_kv);
  EXPECT_EQ(ring.decode, DecodeMode::pass_q);
  EXPECT_NE(ring.why, "");
  Resources single;
  refuse_unexecuted(job_with("backend=cpu"), single);
  EXPECT_EQ(single.decode, DecodeMode::single);
  EXPECT_EQ(single.why, "");
}

}  // namespace
}  // namespace pecia::runtime
