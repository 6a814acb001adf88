// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/base/core/error.hpp"
#include "lib/base/report/progress.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::report {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

class ProgressTest : public testing::Test {
 protected:
  Progress make(ProgressOptions options, const ProgressState& start = {}) {
    return Progress(totals_, start, std::move(options), out_, [this] { return now_; });
  }
  /// What was printed since the last call.
  std::string printed() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }
  static ProgressOptions bar(int columns) {
    ProgressOptions options;
    options.style = ProgressStyle::bar;
    options.columns = columns;
    return options;
  }

  ProgressTotals totals_{64, 64, 800'000, 100.0};
  nanoseconds now_ = seconds(1000);  // a clock need not begin at 0
  std::ostringstream out_;
};

TEST_F(ProgressTest, PrintsAPlainLinePerInterval) {
  Progress progress = make({});
  now_ += milliseconds(999);
  progress.update({});
  EXPECT_EQ(printed(), "");
  now_ += milliseconds(1);
  progress.update({0, 0, 1000, 0, 1});
  EXPECT_NE(printed(), "");
  now_ += milliseconds(9999);
  progress.update({1, 0, 1000, 10, 5});
  EXPECT_EQ(printed(), "");
  now_ += milliseconds(1);
  progress.update({16, 1, 412'000, 190, 27.5, {}, 180, 8, 2});
  EXPECT_EQ(
      printed(),
      "pecia: 16 of 64 requests done, 1 failed · 28 % of the work · 412k of 800k tokens read · "
      "prefill 51.5k tok/s · decode 90 tok/s · 29 s left\n");
  now_ += seconds(9);
  progress.update({17, 1, 412'000, 190, 28});
  EXPECT_EQ(printed(), "");
}

TEST_F(ProgressTest, SaysWithinASecondOfTheFirstPassHowMuchItHasRead) {
  ProgressOptions options;
  options.line_interval = seconds(60);
  Progress progress = make(options);
  for (int update = 1; update < 10; ++update) {
    now_ += milliseconds(100);
    progress.update({0, 0, 1200 * update, 0, 0.1 * update, {}, 0, 0.1 * update});
    EXPECT_EQ(printed(), "");
  }
  now_ += milliseconds(100);
  progress.update({0, 0, 12'000, 0, 1, {}, 0, 1});
  EXPECT_EQ(
      printed(),
      "pecia: 0 of 64 requests done, 0 failed · 1.0 % of the work · 12.0k of 800k tokens read "
      "· prefill 12.0k tok/s · 1 min 39 s left\n");
}

TEST_F(ProgressTest, TakesTheIntervalOfTheJob) {
  ProgressOptions options;
  options.line_interval = milliseconds(300);
  Progress progress = make(options);
  now_ += milliseconds(299);
  progress.update({});
  EXPECT_EQ(printed(), "");
  now_ += milliseconds(1);
  progress.update({});
  EXPECT_NE(printed().find("time left unknown"), std::string::npos);
  options.line_interval = seconds(0);
  EXPECT_THROW(make(options), InvalidArgument);
}

TEST_F(ProgressTest, MeasuresSpeedOverTheTimeThatAPhaseRanInTheWindow) {
  Progress progress = make({});
  EXPECT_EQ(progress.prefill_tokens_per_s(), std::nullopt);
  now_ += seconds(100);
  progress.update({.prompt_tokens = 500'000, .work = 10, .prefill_s = 50});
  EXPECT_EQ(progress.prefill_tokens_per_s(), 10'000) << "half of the time prefill did not run";
  now_ += seconds(30);
  progress.update({.prompt_tokens = 500'000,
                   .output_tokens = 61,
                   .work = 20,
                   .decode_tokens = 60,
                   .prefill_s = 50,
                   .decode_s = 20});
  EXPECT_EQ(progress.prefill_tokens_per_s(), std::nullopt) << "it did not run in the window";
  EXPECT_EQ(progress.decode_tokens_per_s(), 3);
}

TEST_F(ProgressTest, EndsWithTheSpeedsOfTheWholeStartAsTheSummaryHasThem) {
  Progress progress = make({}, {32, 0, 400'000, 0, 50});
  now_ += seconds(50);
  progress.update({.prompt_tokens = 500'000, .work = 60, .prefill_s = 50});
  now_ += seconds(50);
  progress.finish({.turns_done = 64,
                   .prompt_tokens = 600'000,
                   .output_tokens = 232,
                   .work = 100,
                   .decode_tokens = 200,
                   .prefill_s = 80,
                   .decode_s = 20});
  EXPECT_EQ(progress.prefill_tokens_per_s(), 2500);
  EXPECT_EQ(progress.decode_tokens_per_s(), 10);
  EXPECT_NE(printed().find("prefill 2.5k tok/s · decode 10 tok/s"), std::string::npos);
}

TEST_F(ProgressTest, EstimatesTheRestFromWorkNotFromTokensOrRequests) {
  Progress progress = make({});
  EXPECT_FALSE(progress.remaining_s());
  now_ += seconds(20);
  progress.update({63, 0, 799'999, 0, 20});
  EXPECT_DOUBLE_EQ(*progress.remaining_s(), 80);
}

TEST_F(ProgressTest, CountsEarlierWorkAsDoneButNotAsSpeed) {
  Progress progress = make({}, {32, 0, 400'000, 100, 50});
  now_ += seconds(10);
  progress.update({33, 0, 410'000, 100, 60, {}, 0, 5});
  EXPECT_EQ(progress.prefill_tokens_per_s(), 2000);
  EXPECT_DOUBLE_EQ(*progress.remaining_s(), 40);
  EXPECT_NE(printed().find("33 of 64 requests done, 0 failed · 60 % of the work"),
            std::string::npos);
}

TEST_F(ProgressTest, CountsRestoredWorkAsDoneButNotAsSpeed) {
  Progress progress = make({});
  now_ += seconds(10);
  progress.update({.restored_tokens = 400'000, .restored_work = 50});
  EXPECT_FALSE(progress.remaining_s()) << "nothing was computed yet";
  EXPECT_NE(printed().find("50 % of the work · 400k of 800k tokens read · time left unknown"),
            std::string::npos);
  now_ += seconds(10);
  progress.update({.prompt_tokens = 80'000,
                   .work = 10,
                   .prefill_s = 8,
                   .restored_tokens = 400'000,
                   .restored_work = 50});
  EXPECT_EQ(progress.prefill_tokens_per_s(), 10'000);
  EXPECT_DOUBLE_EQ(*progress.remaining_s(), 80) << "10 of the work took 20 s, 40 are left";
  EXPECT_NE(printed().find("60 % of the work · 480k of 800k tokens read"), std::string::npos);
}

TEST_F(ProgressTest, KeepsEveryStartInItsFileEvenIfItIsKilled) {
  const test::TempFolder folder;
  ProgressOptions options;
  options.file = folder / "progress.json";
  EXPECT_TRUE(read_starts(options.file).empty()) << "there is none yet";
  {
    totals_.own = {1000, 2, 0, 0, 0, 0, 8, 0};
    Progress killed = make(options);
    now_ += seconds(10);
    killed.update({5, 1, 30'000, 40, 10});
  }
  totals_.earlier = read_starts(options.file);
  ASSERT_EQ(totals_.earlier.size(), 1u);
  totals_.own = {2000, 3, 0, 0, 0, 0, 4, 0};
  Progress second = make(options, {5, 1, 30'000, 0, 10});
  now_ += seconds(20);
  second.finish({60, 4, 800'000, 90, 100});

  const std::vector<StartRecord> starts = read_starts(options.file);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].seconds, 12);
  EXPECT_EQ(starts[0].done, 5);
  EXPECT_EQ(starts[0].cores, 8);
  EXPECT_EQ(starts[1].began_unix_s, 2000);
  EXPECT_EQ(starts[1].seconds, 23);
  EXPECT_EQ(starts[1].done, 55);
  EXPECT_EQ(starts[1].failed, 3);
  EXPECT_EQ(starts[1].prompt_tokens, 770'000);
  EXPECT_EQ(starts[1].output_tokens, 90);
  const StartRecord all = sum_of(starts);
  EXPECT_EQ(all.done, 60);
  EXPECT_EQ(all.prompt_tokens, 800'000);
  EXPECT_EQ(device_seconds(starts), 12 * 8 + 23 * 4);
}

TEST_F(ProgressTest, TakesNoStartsFromADamagedOrForeignFile) {
  const test::TempFolder folder;
  for (const char* text : {"", "{", "[]", "{}", R"({"starts": 1})", R"({"starts": [{"done": 1}]})",
                           R"({"starts": [{"began_unix_s": "x"}]})"}) {
    std::ofstream(folder / "progress.json") << text;
    EXPECT_TRUE(read_starts(folder / "progress.json").empty()) << text;
  }
}

TEST_F(ProgressTest, ReadsNoMoreThanThereIs) {
  Progress progress = make({});
  progress.finish({64, 0, 812'000, 0, 100});  // a prompt was read again
  EXPECT_NE(printed().find("800k of 800k tokens read"), std::string::npos);
}

TEST_F(ProgressTest, CountsTurnsOfConversations) {
  totals_.requests = 20;
  Progress progress = make({});
  progress.finish({.turns_done = 33});
  EXPECT_NE(printed().find("33 of 64 turns done, 0 failed"), std::string::npos);
}

TEST_F(ProgressTest, SaysHowManyHaveArrivedAndWaitsForTheLast) {
  const test::TempFolder folder;
  totals_.last_arrival_s = 100;
  ProgressOptions options;
  options.file = folder / "progress.json";
  Progress progress = make(options);
  now_ += seconds(10);
  progress.update({16, 0, 0, 0, 50, 17});
  EXPECT_NE(printed().find(" of the work · 17 arrived · 0 of 800k"), std::string::npos);
  EXPECT_EQ(json::parse(test::text_of(options.file)).at("turns").at("arrived"), 17);
  EXPECT_DOUBLE_EQ(*progress.remaining_s(), 90);  // by its speed alone it would be 10
}

TEST_F(ProgressTest, DrawsOneLineOverAndOver) {
  Progress progress = make(bar(200));
  now_ += milliseconds(199);
  progress.update({});
  EXPECT_EQ(printed(), "");
  now_ += milliseconds(9'801);
  progress.update({16, 1, 412'000, 190, 50, {}, 190, 8, 2});
  EXPECT_EQ(
      printed(),
      "\r███████████████░░░░░░░░░░░░░░░  50 %  16/64 done, 1 failed · 412k of 800k tokens read · "
      "prefill 51.5k tok/s · decode 95 tok/s · 10 s left\x1b[K");
  progress.finish({64, 0, 800'000, 400, 100});
  const std::string last = printed();
  EXPECT_NE(last.find("100 %  64/64 done"), std::string::npos) << last;
  EXPECT_TRUE(last.ends_with("\x1b[K\n")) << last;
}

TEST_F(ProgressTest, NeverWrapsAndNeverCutsACharacter) {
  for (int columns = 1; columns <= 120; ++columns) {
    Progress progress = make(bar(columns));
    now_ += seconds(1);
    progress.update({16, 1, 412'000, 190, 50});
    std::string line = printed();
    ASSERT_TRUE(line.starts_with("\r") && line.ends_with("\x1b[K"));
    line = line.substr(1, line.size() - 4);
    EXPECT_TRUE(json::accept(json(line).dump())) << "dump throws on broken UTF-8";
    const auto characters =
        std::ranges::count_if(line, [](char byte) { return (byte & 0xc0) != 0x80; });
    EXPECT_LT(characters, columns);
  }
}

TEST_F(ProgressTest, ColoursFailuresOnlyIfAsked) {
  for (const bool colour : {false, true}) {
    ProgressOptions options = bar(200);
    options.colour = colour;
    Progress progress = make(options);
    now_ += seconds(1);
    progress.update({});
    EXPECT_EQ(printed().find("\x1b[31m"), std::string::npos);
    now_ += seconds(1);
    progress.update({1, 2, 0, 0, 0});
    EXPECT_EQ(printed().find("\x1b[31m2 failed\x1b[0m") != std::string::npos, colour);
  }
}

TEST_F(ProgressTest, OffPrintsNothingButWritesTheFile) {
  const test::TempFolder folder;
  ProgressOptions options;
  options.style = ProgressStyle::off;
  options.file = folder / "progress.json";
  Progress progress = make(options);
  now_ += seconds(100);
  progress.update({});
  progress.finish({});
  EXPECT_EQ(printed(), "");
  EXPECT_TRUE(std::filesystem::exists(options.file));
}

TEST_F(ProgressTest, WritesTheFileAtMostOncePerSecondAndAtTheEnd) {
  const test::TempFolder folder;
  ProgressOptions options;
  options.file = folder / "progress.json";
  Progress progress = make(options);
  const auto done = [&] {
    return json::parse(test::text_of(options.file)).at("turns").at("done").get<int>();
  };
  now_ += seconds(10);
  const std::time_t before = std::time(nullptr);
  progress.update({16, 1, 412'000, 190, 25, {}, 180, 8, 2});
  json found = json::parse(test::text_of(options.file));
  EXPECT_GE(found.at("updated_unix_s"), before);
  EXPECT_LE(found.at("updated_unix_s"), std::time(nullptr));
  found.erase("updated_unix_s");
  EXPECT_EQ(found, json::parse(R"({
    "schema": "pecia.progress/1", "finished": false,
    "requests": 64,
    "turns": {"total": 64, "done": 16, "failed": 1},
    "prompt_tokens": {"total": 800000, "done": 412000}, "output_tokens": 190, "work_share": 0.25,
    "prefill_tokens_per_s": 51500.0, "decode_tokens_per_s": 90.0,
    "elapsed_s": 10.0, "remaining_s": 30.0,
    "starts": [{"began_unix_s": 0.0, "seconds": 10.0, "done": 16, "failed": 1,
      "prompt_tokens": 412000, "output_tokens": 190, "cores": 0, "gpus": 0, "hosts": 0}]})"));
  now_ += milliseconds(999);
  progress.update({17, 1, 412'000, 190, 26});
  EXPECT_EQ(done(), 16);
  now_ += milliseconds(1);
  progress.update({18, 1, 412'000, 190, 27});
  EXPECT_EQ(done(), 18);
  progress.finish({63, 1, 800'000, 400, 100});
  EXPECT_EQ(done(), 63);
  const json last = json::parse(test::text_of(options.file));
  EXPECT_EQ(last.at("finished"), true);
  EXPECT_EQ(last.at("remaining_s"), 0.0);
}

TEST_F(ProgressTest, OfNothingToDoIsDone) {
  totals_ = {};
  Progress progress = make({});
  progress.finish({});
  EXPECT_EQ(printed(),
            "pecia: 0 of 0 requests done, 0 failed · 100 % of the work · 0 of 0 tokens read · 0 ms "
            "left\n");
}

/// The slave side of a new pseudo-terminal, as a user's stderr would be.
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
    slave_ = open(ptsname(master_), O_RDWR | O_NOCTTY);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (slave_ >= 0) close(slave_);
    if (master_ >= 0) close(master_);
  }
  int descriptor() const { return slave_; }

 private:
  int master_;
  int slave_ = -1;
};

TEST(ProgressOptionsOf, RespectsTerminalsDumbOnesAndNoColor) {
  const Terminal terminal;
  ASSERT_GE(terminal.descriptor(), 0);
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_EQ(progress_options_of(terminal.descriptor()).style, ProgressStyle::bar);
  EXPECT_TRUE(progress_options_of(terminal.descriptor()).colour);
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(progress_options_of(terminal.descriptor()).style, ProgressStyle::bar);
  EXPECT_FALSE(progress_options_of(terminal.descriptor()).colour);
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(progress_options_of(terminal.descriptor()).style, ProgressStyle::lines);
  setenv("TERM", "xterm", 1);
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_EQ(progress_options_of(file).style, ProgressStyle::lines);
  close(file);
  unsetenv("NO_COLOR");
}

}  // namespace
}  // namespace pecia::report
