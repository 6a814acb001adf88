// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/core/error.hpp"
#include "lib/job/job.hpp"

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
        Absent{"model.compute=fp8",
               "model.compute: fp8 multiplies weights of that type alone; use model.dtype: fp8, or "
               "compute: auto"}));

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
