// SPDX-License-Identifier: Apache-2.0
/// What a profiler sees of our spans. CTest names a double of the profiler in the environment, which
/// NVTX loads with the first range.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lib/base/report/profiler_ranges.hpp"
#include "lib/base/report/spans.hpp"

namespace pecia::report {
namespace {

std::string seen_ranges() {
  void* const profiler = dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
  if (profiler == nullptr) return "the profiler was not loaded";
  const auto seen = reinterpret_cast<const char* (*)()>(dlsym(profiler, "pecia_seen_ranges"));
  return seen();
}

TEST(ProfilerRanges, HaveTheNamesAndTheOrderOfSpans) {
  ASSERT_TRUE(has_profiler_ranges());
  ASSERT_NE(std::getenv("NVTX_INJECTION64_PATH"), nullptr);
  Recorder recorder;
  {
    const ScopedSpan pass(recorder, "decode", Kind::phase);
    { const ScopedSpan op(recorder, "qkv_proj", Kind::compute); }
    { const ScopedSpan wait(recorder, "all_reduce", Kind::comm); }
  }
  EXPECT_EQ(seen_ranges(), "decode(qkv_proj()all_reduce())");
  { const ScopedSpan wait(recorder, "wait_for_plan", Kind::idle); }
  EXPECT_EQ(seen_ranges(), "wait_for_plan()");
}

}  // namespace
}  // namespace pecia::report
