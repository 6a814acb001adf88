// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "lib/base/report/run_report.hpp"
#include "lib/base/report/startup.hpp"

namespace pecia::report {
namespace {

using std::chrono::milliseconds;

/// A start whose clock is moved by hand.
struct Start {
  std::chrono::nanoseconds now{milliseconds(7000)};
  Startup startup{"mpi", 1e9, [this] { return now; }};
};

TEST(Startup, TimesPhasesThatFollowOneAnother) {
  Start start;
  start.now += milliseconds(250);
  start.startup.begin("load_weights");
  EXPECT_EQ(start.startup.phases().size(), 1u);
  start.now += milliseconds(1500);
  start.startup.end();

  const auto& phases = start.startup.phases();
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].name, "mpi");
  EXPECT_DOUBLE_EQ(phases[0].seconds, 0.25);
  EXPECT_EQ(phases[1].name, "load_weights");
  EXPECT_DOUBLE_EQ(phases[1].seconds, 1.5);
  EXPECT_EQ(start.startup.main_unix_s(), 1e9);
}

TEST(Startup, LeavesOutWhatIsBetweenAnEndAndTheNextBegin) {
  Start start;
  start.startup.end();
  start.now += milliseconds(4000);
  start.startup.end();
  EXPECT_EQ(start.startup.phases().size(), 1u);
  start.startup.begin("schedule");
  start.now += milliseconds(500);
  start.startup.end();
  ASSERT_EQ(start.startup.phases().size(), 2u);
  EXPECT_DOUBLE_EQ(start.startup.phases()[1].seconds, 0.5);
}

TEST(Startup, StandsInTheReport) {
  RunReport report;
  EXPECT_TRUE(to_json(report).at("startup").is_null());
  Start start;
  start.now += milliseconds(250);
  start.startup.end();
  report.startup = start.startup;
  EXPECT_EQ(to_json(report).at("startup"),
            nlohmann::ordered_json::parse(R"({"main_unix_s": 1e9, "mpi_s": 0.25})"));
}

}  // namespace
}  // namespace pecia::report
