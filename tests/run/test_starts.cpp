// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/run/starts.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::run {
namespace {

class Starts : public testing::Test {
 protected:
  static Start start(int cp, DType products, DType keys_and_values = DType::fp32) {
    resources::Resources resources;
    resources.cp = cp;
    if (cp > 1) {
      resources.prefill = parallel::PrefillMode::ring;
      resources.decode = parallel::DecodeMode::pass_q;
    }
    resources.kv_dtype = keys_and_values;
    return start_of(resources, products);
  }
  /// The warning, "" where there is none.
  std::string record(const Start& start, bool has_answers = true,
                     parallel::Reproducible reproducible = parallel::Reproducible::run) {
    return record_start(folder_.path(), start, has_answers, reproducible).value_or("");
  }

  test::TempFolder folder_;
};

TEST_F(Starts, OnAnotherLayoutAreWarnedOf) {
  EXPECT_EQ(record(start(2, DType::bf16), false), "");
  EXPECT_EQ(record(start(2, DType::bf16)), "");
  const std::string warning = record(start(1, DType::bf16));
  for (const char* part : {"(dp 1, cp 2, sp 1, tp 1, ring/auto+pass_q, CPUs, products in bf16)",
                           "(dp 1, cp 1, sp 1, tp 1, single, CPUs, products in bf16)",
                           "With products that are not", "reproducible: layout"})
    EXPECT_NE(warning.find(part), std::string::npos) << part << " is not in: " << warning;
  EXPECT_NE(record(start(1, DType::bf16)), "") << "the first start's answers are still there";
}

TEST_F(Starts, OfFp32AreNotWarnedOf) {
  record(start(2, DType::fp32), false);
  EXPECT_EQ(record(start(1, DType::fp32)), "");
  EXPECT_EQ(record(start(4, DType::fp32)), "");
}

TEST_F(Starts, WithANarrowCacheAreWarnedOf) {
  record(start(2, DType::fp32, DType::bf16), false);
  EXPECT_NE(record(start(1, DType::fp32, DType::bf16)).find("With keys and values that are not"),
            std::string::npos);
}

TEST_F(Starts, OnAMachineThatMultipliesOtherwiseAreWarnedOf) {
  record(start(1, DType::fp32), false);
  record(start(2, DType::fp32));
  EXPECT_NE(record(start(2, DType::bf16)).find("this one (dp 1, cp 2"), std::string::npos);
  EXPECT_NE(record(start(1, DType::fp32))
                .find("another layout (dp 1, cp 2, sp 1, tp 1, "
                      "ring/auto+pass_q, CPUs, products in bf16)"),
            std::string::npos)
      << "of all earlier starts, the one that differs";
}

TEST_F(Starts, ReproducibleByLayoutAreNotWarnedOf) {
  record(start(2, DType::bf16), false);
  EXPECT_EQ(record(start(1, DType::bf16), true, parallel::Reproducible::layout), "");
  EXPECT_NE(record(start(1, DType::fp32), true, parallel::Reproducible::layout)
                .find("multiplied in bf16, and this one multiplies in fp32"),
            std::string::npos);
}

TEST_F(Starts, WithoutAnswersAreForgotten) {
  record(start(2, DType::bf16), false);
  EXPECT_EQ(record(start(1, DType::bf16), false), "");
  EXPECT_EQ(record(start(1, DType::bf16)), "");
}

TEST_F(Starts, BeginWithTheRatesOfThoseLikeThem) {
  const schedule::PassTimes estimate{schedule::RateFit({1, 2, 3}), schedule::RateFit({4, 5, 6})};
  const auto begins_with = [&](int cp) {
    return kept_times(folder_.path(), start(cp, DType::fp32), estimate).prefill.seconds({0, 1, 0});
  };
  record(start(2, DType::fp32), false);
  record(start(1, DType::fp32));
  EXPECT_EQ(begins_with(2), 2) << "nothing is kept yet";
  schedule::PassTimes times = estimate;
  for (int pass = 0; pass < 20; ++pass) times.add({1, 100, 5000}, {}, 0.1 * (1 + 200 + 15000));
  keep_times(folder_.path(), start(2, DType::fp32), times, {});
  EXPECT_NEAR(begins_with(2), 0.2, 1e-3);
  EXPECT_EQ(begins_with(1), 2) << "another layout";
  record(start(2, DType::fp32));
  EXPECT_NEAR(begins_with(2), 0.2, 1e-3) << "a later start keeps them";
  const schedule::PassTimes kept = kept_times(folder_.path(), start(2, DType::fp32), estimate);
  EXPECT_FALSE(kept.prefill.measured()) << "by this start";
  EXPECT_EQ(kept.decode.rates().row_s, 5) << "no pass was measured";
}

TEST_F(Starts, OfTeamsBeginWithTheRatesOfThoseLikeThem) {
  using schedule::PassKind;
  const schedule::PassTimes alone{schedule::RateFit({1, 2, 3}), schedule::RateFit({4, 5, 6})};
  const schedule::TeamTimes fresh(alone, {.bytes_per_second = 1e9, .layers = 2}, 3);
  const Start like = start(3, DType::fp32);
  record(like, false);
  schedule::TeamTimes measured = fresh;
  const schedule::PassWork work{1, 100, 5000};
  for (int pass = 0; pass < 30; ++pass) measured.add(2, PassKind::prefill, work, 4000);
  keep_times(folder_.path(), like, alone, measured);

  schedule::TeamTimes later = fresh;
  begin_as_kept(folder_.path(), like, later);
  EXPECT_NEAR(later.seconds(2, PassKind::prefill, work), 4000, 1);
  EXPECT_FALSE(later.measured(2, PassKind::prefill)) << "by this start";
  EXPECT_EQ(later.rates(2, PassKind::decode).row_s, fresh.rates(2, PassKind::decode).row_s);
  EXPECT_EQ(later.rates(3, PassKind::prefill).row_s, fresh.rates(3, PassKind::prefill).row_s);

  keep_times(folder_.path(), like, alone, later);
  schedule::TeamTimes third = fresh;
  begin_as_kept(folder_.path(), like, third);
  EXPECT_NEAR(third.seconds(2, PassKind::prefill, work), 4000, 1) << "one start did not measure it";

  schedule::TeamTimes other = fresh;
  record(start(2, DType::fp32));
  begin_as_kept(folder_.path(), start(2, DType::fp32), other);
  EXPECT_EQ(other.seconds(2, PassKind::prefill, work), fresh.seconds(2, PassKind::prefill, work))
      << "another layout";
}

TEST_F(Starts, ThatAreDamagedAreRefused) {
  for (const char* text : {"", "[]", "{\"schema\": \"pecia.starts/1\", \"starts\": [5]}",
                           "{\"schema\": \"pecia.starts/2\", \"starts\": []}"}) {
    std::ofstream(folder_ / "starts.json") << text;
    test::expect_error<InputError>([&] { record(start(1, DType::fp32)); },
                                   {"starts.json", "remove it"});
  }
}

}  // namespace
}  // namespace pecia::run
