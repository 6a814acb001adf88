// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/pecia/command.hpp"
#include "apps/pecia/complaint.hpp"
#include "apps/pecia/printable.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::app {
namespace {

TEST(Ranges, JoinNeighbours) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(Reported, TurnsExceptionsIntoExitCodes) {
  EXPECT_EQ(reported([] { return 75; }), 75);
  EXPECT_EQ(reported([]() -> int { fail<InputError>("input"); }), 2);
  EXPECT_EQ(reported([]() -> int { fail<Unsupported>("absent"); }), 2);
  EXPECT_EQ(reported([]() -> int { fail<SystemError>("disk"); }), 1);
}

TEST(Printable, CutsAndCleans) {
  EXPECT_EQ(printable("a\x1b[2J\x7f\nb"), R"(a\x1b[2J\x7f\nb)");
  EXPECT_EQ(printable_lines("a\x1b[2J\nb"), "a\\x1b[2J\nb");
  EXPECT_EQ(printable("a\xff"), "a\xef\xbf\xbd");
  EXPECT_EQ(printable("123456", 3), "123…");
}

TEST(Examples, StandOnLinesOfTheirOwn) {
  EXPECT_EQ(examples({"one", "two"}), "Examples:\n  one\n  two");
}

/// What an app with a command `run [JOB] [--set …] [--fresh]` says of the arguments.
std::string complaint_about(std::vector<std::string> arguments) {
  CLI::App app("", "pecia");
  app.require_subcommand(0, 1);
  std::string job, set;
  bool fresh = false;
  CLI::App* run = app.add_subcommand("run", "");
  run->add_option("job", job);
  run->add_option("--set", set);
  run->add_flag("--fresh", fresh);
  app.add_subcommand("inspect", "");
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return complaint(app, error);
  }
  return "";
}

TEST(Complaint, NamesUnknownArgumentsInTheirOrder) {
  EXPECT_EQ(complaint_about({"run", "a.yaml", "--one", "b.yaml", "--two=2"}),
            "unknown arguments: --one, b.yaml, --two=2");
  EXPECT_EQ(complaint_about({"--one", "run", "a.yaml", "--two"}),
            "unknown arguments: --one, --two");
}

TEST(Complaint, SuggestsOnlyWhatIsNear) {
  EXPECT_EQ(complaint_about({"run", "a.yaml", "--ste", "x=1"}),
            "unknown arguments: --ste (did you mean --set?), x=1");
  EXPECT_EQ(complaint_about({"run", "--frehs=1"}),
            "unknown argument: --frehs=1 (did you mean --fresh?)");
  EXPECT_EQ(complaint_about({"run", "--frobnicate"}), "unknown argument: --frobnicate");
  EXPECT_EQ(complaint_about({"inpsect", "x"}),
            "unknown command: inpsect (did you mean inspect?), x");
  EXPECT_EQ(complaint_about({"frobnicate"}), "unknown command: frobnicate");
}

TEST(Complaint, LeavesOtherErrorsToCli11) {
  EXPECT_NE(complaint_about({"run", "--set"}).find("--set"), std::string::npos);
  EXPECT_EQ(complaint_about({"run", "a.yaml"}), "");
}

}  // namespace
}  // namespace pecia::app
