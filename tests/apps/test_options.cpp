// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line/options.hpp"

namespace pecia::command_line {
namespace {

struct Values {
  std::string job;
  std::vector<std::string> set;
  std::vector<int64_t> tokens{1, 2};
  std::vector<double> shares{0.5};
  std::optional<int> ranks;
  std::optional<double> interval;
  int runs = 5;
  uint64_t bytes = 1;
  std::string dtype = "auto";
  bool watch = false;
};

class Options : public testing::Test {
 protected:
  Options() {
    const std::vector<Option> all = {
        {.name = "job", .into = &values_.job, .help = "The job", .type = "JOB.yaml"},
        {.name = "--set", .into = &values_.set, .help = "A value"},
        {.name = "--tokens", .into = &values_.tokens, .help = "Lengths", .sign = Sign::positive},
        {.name = "--shares", .into = &values_.shares, .help = "Shares", .range = {{0, 0.95}}},
        {.name = "--ranks", .into = &values_.ranks, .help = "Ranks", .range = {{1, 64}}},
        {.name = "--watch", .into = &values_.watch, .help = "Again and again"},
        {.name = "--interval",
         .into = &values_.interval,
         .help = "Seconds",
         .range = {{0.5, 10}},
         .needs = "--watch"},
        {.name = "--runs",
         .into = &values_.runs,
         .help = "Timed runs",
         .show_default = true,
         .sign = Sign::positive,
         .excludes = "--ranks"},
        {.name = "--bytes", .into = Size{&values_.bytes}, .help = "Bytes"},
        {.name = "--dtype", .into = &values_.dtype, .help = "Type", .among = {"auto", "fp8"}}};
    for (const Option& option : all) add_option(app_, option);
  }

  bool takes(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(arguments);
      return true;
    } catch (const CLI::ParseError&) {
      return false;
    }
  }

  CLI::App app_;
  Values values_;
};

TEST_F(Options, GoWhereTheyAreSaidTo) {
  ASSERT_TRUE(takes({"--set", "a=1", "job.yaml", "--set", "b=2", "--tokens", "3,40", "--ranks", "8",
                     "--watch", "--interval", "0.5", "--bytes", "64KiB", "--dtype", "fp8"}));
  EXPECT_EQ(values_.job, "job.yaml");
  EXPECT_EQ(values_.set, (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_EQ(values_.tokens, (std::vector<int64_t>{3, 40}));
  EXPECT_EQ(values_.ranks, 8);
  EXPECT_EQ(values_.interval, 0.5);
  EXPECT_EQ(values_.bytes, 65536u);
  EXPECT_EQ(values_.dtype, "fp8");
  EXPECT_TRUE(values_.watch);
  EXPECT_EQ(values_.runs, 5);
}

TEST_F(Options, ListsOfNumbersHaveFractions) {
  ASSERT_TRUE(takes({"--shares", "0,0.25,0.95"}));
  EXPECT_EQ(values_.shares, (std::vector<double>{0, 0.25, 0.95}));
}

TEST_F(Options, AreRefusedOutsideTheirBounds) {
  EXPECT_FALSE(takes({"--shares", "0,0.96"}));
  EXPECT_FALSE(takes({"--ranks", "0"}));
  EXPECT_FALSE(takes({"--ranks", "65"}));
  EXPECT_FALSE(takes({"--watch", "--interval", "0.4"}));
  EXPECT_FALSE(takes({"--runs", "0"}));
  EXPECT_FALSE(takes({"--tokens", "3,-1"}));
  EXPECT_FALSE(takes({"--dtype", "fp7"}));
}

TEST_F(Options, NeedAndExcludeOthers) {
  EXPECT_FALSE(takes({"--interval", "1"}));
  EXPECT_FALSE(takes({"--ranks", "2", "--runs", "3"}));
  EXPECT_TRUE(takes({"--runs", "3"}));
}

TEST_F(Options, AreExplainedWithTypesBoundsAndDefaults) {
  const std::string help = app_.help();
  for (const char* part : {"JOB.yaml", "INT in [1 - 64]", "FLOAT in [0.5 - 10]", "Timed runs",
                           "POSITIVE", "5", "{auto,fp8}", "--watch"})
    EXPECT_NE(help.find(part), std::string::npos) << part << " in\n" << help;
}

TEST(Commands, DoTheirWorkWhenTheyAreChosen) {
  CLI::App app;
  std::string chosen;
  add_command(app, "run", "Runs", "Examples", [&] { chosen = "run"; });
  add_command(app, "plan", "Plans", "", [&] { chosen = "plan"; });
  std::vector<std::string> arguments{"run"};
  app.parse(arguments);
  EXPECT_EQ(chosen, "run");
  EXPECT_NE(app.get_subcommand("run")->help().find("Examples"), std::string::npos);
}

}  // namespace
}  // namespace pecia::command_line
