// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "kernels/cpu/peak_loops.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::kernels::cpu {
namespace {

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The least of many short runs, in which nobody took the core away.
double flops_per_s(const PeakLoop& loop) {
  constexpr int64_t rounds = 20'000;
  double best_s = 1;
  for (int run = 0; run < 50; ++run)
    best_s = std::min(best_s, seconds_of([&] { loop.run(rounds); }));
  return static_cast<double>(rounds) * loop.flops_of_round / best_s;
}

TEST(PeakLoops, ThatCanRunDoSoAtTheSpeedOfACore) {
  for (const DType operands : {DType::fp32, DType::bf16})
    for (const PeakLoop& loop : peak_loops(operands)) {
      if (!loop.why_not.empty()) continue;
      const double flops = flops_per_s(loop);
      EXPECT_GT(flops, 5e9) << loop.instructions;  // two units of 8 numbers at 1 GHz give 32
      EXPECT_LT(flops, 2e13) << loop.instructions;
    }
}

TEST(PeakLoops, TakeTwiceAsLongForTwiceTheRounds) {
  const PeakLoop loop = peak_loops(DType::fp32).front();
  double once_s = 1, twice_s = 1;
  for (int run = 0; run < 200; ++run) {
    once_s = std::min(once_s, seconds_of([&] { loop.run(20'000); }));
    twice_s = std::min(twice_s, seconds_of([&] { loop.run(40'000); }));
  }
  EXPECT_GT(twice_s / once_s, 1.4);
  EXPECT_LT(twice_s / once_s, 3);
}

TEST(PeakLoops, SayWhyTheyCannotRun) {
  const auto fp32 = peak_loops(DType::fp32), bf16 = peak_loops(DType::bf16);
  EXPECT_EQ(fp32.front().why_not, "") << "every CPU of the backend has AVX2, or NEON";
  EXPECT_THROW(peak_loops(DType::int32), Unsupported);
  if (isa() < Isa::avx2) {
    EXPECT_STREQ(bf16.front().instructions, "BFMMLA");
    EXPECT_EQ(bf16.front().why_not.empty(), isa() == Isa::neon_bf16);
    return;
  }
  EXPECT_EQ(fp32.back().why_not.empty(), isa() >= Isa::avx512);
  EXPECT_EQ(bf16.front().why_not.empty(), isa() >= Isa::avx512_bf16);
  EXPECT_STREQ(bf16.back().instructions, "AMX TDPBF16PS");
  EXPECT_EQ(bf16.back().why_not, why_no_amx());
  EXPECT_EQ(bf16.back().why_not.empty(), isa() == Isa::amx_bf16);
}

TEST(ReadMemory, ReadsOnlyWholeStepsOfWhatThereIs) {
  const device::Buffer buffer(4096);
  read_memory(buffer.as<std::byte>(), 256);
  read_memory(buffer.as<std::byte>(), 4096);
  EXPECT_THROW(read_memory(buffer.as<std::byte>(), 0), InvalidArgument);
  EXPECT_THROW(read_memory(buffer.as<std::byte>(), 300), InvalidArgument);
}

}  // namespace
}  // namespace pecia::kernels::cpu
