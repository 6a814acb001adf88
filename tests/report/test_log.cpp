// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <cstdlib>
#include <sstream>

#include "lib/base/core/error.hpp"
#include "lib/base/report/log.hpp"

namespace pecia::report {
namespace {

std::string logged(int rank, int num_ranks, spdlog::level::level_enum level) {
  std::ostringstream out;
  const auto logger =
      make_logger(rank, num_ranks, level, std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  logger->debug("d {}", 1);
  logger->info("i");
  logger->warn("w");
  logger->error("e");
  return out.str();
}

TEST(Logger, OfRankZeroSaysInfoPlainlyAndErrorsWithTheRank) {
  EXPECT_EQ(logged(0, 8, spdlog::level::info),
            "pecia: i\npecia: rank 0: warning: w\npecia: rank 0: e\n");
}

TEST(Logger, OfOneRankNeverNamesIt) {
  EXPECT_EQ(logged(0, 1, spdlog::level::info), "pecia: i\npecia: warning: w\npecia: e\n");
}

TEST(Logger, OfOtherRanksSaysOnlyWhatIsWrong) {
  EXPECT_EQ(logged(5, 8, spdlog::level::info), "pecia: rank 5: warning: w\npecia: rank 5: e\n");
  EXPECT_EQ(logged(5, 8, spdlog::level::err), "pecia: rank 5: e\n");
}

TEST(Logger, OfEveryRankSaysAllWhenDebugIsAskedFor) {
  EXPECT_EQ(logged(5, 8, spdlog::level::debug),
            "pecia: rank 5: d 1\npecia: rank 5: i\npecia: rank 5: warning: w\npecia: rank 5: e\n");
}

TEST(LevelFromEnvironment, KnowsItsWordsAndRefusesOthers) {
  unsetenv("PECIA_LOG");
  EXPECT_EQ(level_from_environment(), spdlog::level::info);
  setenv("PECIA_LOG", "debug", 1);
  EXPECT_EQ(level_from_environment(), spdlog::level::debug);
  setenv("PECIA_LOG", "off", 1);
  EXPECT_EQ(level_from_environment(), spdlog::level::off);
  setenv("PECIA_LOG", "loud", 1);
  EXPECT_THROW(level_from_environment(), InputError);
  unsetenv("PECIA_LOG");
}

}  // namespace
}  // namespace pecia::report
