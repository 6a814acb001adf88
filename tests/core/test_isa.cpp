// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/isa.hpp"

namespace pecia {
namespace {

std::string given() {
  return "";
}

std::string refused() {
  return "the operating system refuses it: Operation not permitted";
}

/// The first obstacle is named, on whatever CPU this runs.
TEST(WhyNoAmx, NamesWhatIsInTheWay) {
  const Isa best = Isa::amx_bf16, vectors = Isa::avx512_bf16;
  EXPECT_EQ(why_no_amx(AmxFacts{true, vectors, best, given}), "");
  EXPECT_EQ(why_no_amx(AmxFacts{true, vectors, best, refused}), refused());
  EXPECT_EQ(why_no_amx(AmxFacts{true, vectors, vectors, given}), "PECIA_MAX_ISA rules it out");
  EXPECT_EQ(why_no_amx(AmxFacts{true, Isa::avx512, best, given}),
            "this CPU has no AVX512-BF16, which its kernels use beside it");
  EXPECT_EQ(why_no_amx(AmxFacts{false, vectors, vectors, given}), "this CPU does not have it");
}

/// A permission holds for the whole process, so it is not asked for without need.
TEST(WhyNoAmx, AsksTheOperatingSystemLast) {
  int asked = 0;
  const auto ask = [&] { return ++asked, std::string(); };
  why_no_amx(AmxFacts{false, Isa::avx512_bf16, Isa::amx_bf16, ask});
  why_no_amx(AmxFacts{true, Isa::avx512, Isa::amx_bf16, ask});
  why_no_amx(AmxFacts{true, Isa::avx512_bf16, Isa::avx512_bf16, ask});
  EXPECT_EQ(asked, 0);
  why_no_amx(AmxFacts{true, Isa::avx512_bf16, Isa::amx_bf16, ask});
  EXPECT_EQ(asked, 1);
}

TEST(Isa, OfArmIsBelowAllOfX86) {
  EXPECT_LT(Isa::neon, Isa::neon_bf16);
  EXPECT_LT(Isa::neon_bf16, Isa::avx2) << "comparisons with what x86 has are false on Arm";
  EXPECT_EQ(name_of(Isa::neon), "neon");
  EXPECT_EQ(name_of(Isa::neon_bf16), "neon_bf16");
}

TEST(WhyNoAmx, IsThatOfThisProcess) {
  EXPECT_EQ(why_no_amx().empty(), isa() == Isa::amx_bf16);
  if (!cpu_has_amx()) {
    EXPECT_EQ(why_no_amx(), "this CPU does not have it");
  }
}

}  // namespace
}  // namespace pecia
