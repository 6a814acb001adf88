// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/report/run_report.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::report {
namespace {

using nlohmann::json;

/// Two ranks, 100 s, half of the measured peak in prefill.
RunReport books() {
  RunReport report;
  report.job = {{"model", {{"path", "models/qwen3"}}}};
  report.grid = {.cp = 2};
  report.counts = {64, 0, 0, 0, 4'120'000, 0, 3800};
  report.seconds = 702;
  report.phases = {{"load", 10, 0, 0}, {"prefill", 100, 4'120'000, 5.8e13}, {"decode", 2, 3800, 0}};
  report.stages = {{"attention", "compute", 320, 60.5, 4e13, 1'000'000}};
  report.ttft_s = {3, 1, 2};
  report.ranks = {{0, "n0", 90, 5, 5, 1000}, {1, "n1", 80, 1.2, 12.353, 2000}};
  report.links = {{"ring", "rack", 12, 4096}};
  report.cores = 16;
  report.machine = {.cpu = "a CPU", .isa = "neon_bf16"};
  report.peak = PeakReport{.operands = "fp32",
                           .instructions = "AVX2 VFMADD231PS",
                           .how = "a loop",
                           .start = {1e12, 9e11, 8e11, 12, 0.008},
                           .not_measured = {{"AVX-512 VFMADD231PS", "not there"}},
                           .bandwidth = {4.1e10, 4e10, 3e10, 6, 0.008},
                           .bandwidth_how = "reading"};
  report.errors = {"rank 1: broken \xff text"};
  return report;
}

TEST(Percentiles, LieBetweenNeighbours) {
  const auto values = percentiles({4, 1, 3, 2, 0});
  ASSERT_TRUE(values);
  EXPECT_DOUBLE_EQ(values->p50, 2);
  EXPECT_DOUBLE_EQ(values->p90, 3.6);
  EXPECT_DOUBLE_EQ(values->p99, 3.96);
}

TEST(Percentiles, OfOneValueAreThatValueAndOfNoneAbsent) {
  const auto values = percentiles({7});
  ASSERT_TRUE(values);
  EXPECT_EQ(values->p50, 7);
  EXPECT_EQ(values->p99, 7);
  EXPECT_FALSE(percentiles({}));
  EXPECT_THROW(percentiles({1, NAN}), InvalidArgument);
}

TEST(RunReport, DerivesSpeedsAndShares) {
  const json document = to_json(books());
  EXPECT_EQ(document.at("schema"), "pecia.report/1");
  EXPECT_EQ(document.at("job").at("model").at("path"), "models/qwen3");
  EXPECT_EQ(document.at("machine").at("isa"), "neon_bf16");
  EXPECT_TRUE(document.at("machine").at("gpu").is_null());
  EXPECT_EQ(document.at("build").at("version"), build_info().version);
  EXPECT_EQ(document.at("counts").at("done"), 64);
  EXPECT_EQ(document.at("counts").at("output_tokens"), 3800);
  EXPECT_TRUE(document.at("counts").at("arrived").is_null());
  const json& prefill = document.at("phases").at("prefill");
  EXPECT_DOUBLE_EQ(prefill.at("tokens_per_s").get<double>(), 41'200);
  EXPECT_DOUBLE_EQ(prefill.at("share_of_peak").get<double>(), 0.58);
  EXPECT_DOUBLE_EQ(document.at("ttft_s").at("p50").get<double>(), 2);
  EXPECT_NEAR(document.at("exposed_communication").get<double>(), 6.2 / 193.553, 1e-12);
}

TEST(RunReport, ListsRanksLinksAndStages) {
  const json document = to_json(books());
  EXPECT_EQ(document.at("ranks").size(), 2u);
  EXPECT_EQ(document.at("ranks")[0], json::parse(R"({"rank": 0, "host": "n0", "compute_s": 90.0,
    "exposed_communication_s": 5.0, "idle_s": 5.0, "peak_rss_bytes": 1000})"));
  EXPECT_EQ(
      document.at("links"),
      json::parse(R"([{"pattern": "ring", "level": "rack", "messages": 12, "bytes": 4096}])"));
  EXPECT_EQ(document.at("stages"), json::parse(R"([{"name": "attention", "kind": "compute",
    "count": 320, "seconds": 60.5, "bytes": 1000000, "flops": 4e13}])"));
}

TEST(RunReport, SaysNullForWhatIsNotKnown) {
  const json document = to_json(RunReport{});
  EXPECT_TRUE(document.at("predicted").is_null());
  EXPECT_TRUE(document.at("elastic").is_null());
  EXPECT_TRUE(document.at("sparse").is_null());
  EXPECT_TRUE(document.at("peak_flops").is_null());
  EXPECT_TRUE(document.at("ttft_s").is_null());
  EXPECT_TRUE(document.at("exposed_communication").is_null());
  EXPECT_TRUE(document.at("ranks").is_array() && document.at("ranks").empty());
  EXPECT_TRUE(document.at("phases").is_object() && document.at("phases").empty());
  EXPECT_TRUE(document.at("errors").is_array() && document.at("errors").empty());

  RunReport report = books();
  report.peak.reset();
  report.phases[1].seconds = 0;
  const json prefill = to_json(report).at("phases").at("prefill");
  EXPECT_TRUE(prefill.at("tokens_per_s").is_null());
  EXPECT_TRUE(prefill.at("share_of_peak").is_null());
}

TEST(RunReport, SaysWhatDraftsSaved) {
  RunReport report = books();
  EXPECT_TRUE(json(to_json(report)).at("drafts").is_null());
  report.drafts = DraftReport{.passes = 3,
                              .tokens = {10, 6},
                              .computed_again = 2,
                              .saved_s = {},
                              .by_match = {{2, {4, 1}}, {{}, {6, 5}}},
                              .by_instruction = {{7, {10, 6}}}};
  json drafts = json(to_json(report)).at("drafts");
  EXPECT_TRUE(drafts.at("saved_s").is_null()) << "no pass times were known";
  EXPECT_EQ(drafts.at("tried"), 10);
  EXPECT_EQ(drafts.at("computed_again"), 2);
  EXPECT_EQ(drafts.at("by_match")[0], json::parse(R"({"up_to": 2, "tried": 4, "accepted": 1})"));
  EXPECT_TRUE(drafts.at("by_match")[1].at("up_to").is_null());
  EXPECT_EQ(drafts.at("by_instruction")[0].at("row"), 7);
  report.drafts->saved_s = 1.5;
  EXPECT_EQ(json(to_json(report)).at("drafts").at("saved_s"), 1.5);
}

TEST(RunReport, IsWrittenAsValidJsonWhateverTheErrorsSay) {
  const test::TempFolder folder;
  write_report(folder / "runs/report.json", books());
  const json document = json::parse(test::text_of(folder / "runs/report.json"));
  EXPECT_EQ(document.at("errors").size(), 1u);
  EXPECT_EQ(document.at("counts"), json(to_json(books()).at("counts")));
}

TEST(RunReport, StatesThePeakHowItWasMeasuredAndItsSpread) {
  RunReport report = books();
  report.peak->end = MeasuredRate{1.2e12, 1.1e12, 7e11, 12, 0.008};
  const json document = to_json(report);
  EXPECT_EQ(document.at("peak_flops"), 1.2e12) << "the larger one of both";
  const json& peak = document.at("peak");
  EXPECT_EQ(peak.at("from"), "end");
  EXPECT_EQ(peak.at("instructions"), "AVX2 VFMADD231PS");
  EXPECT_EQ(peak.at("start"), json::parse(R"({"best": 1e12, "median": 9e11, "least": 8e11,
    "windows": 12, "window_s": 0.008})"));
  EXPECT_EQ(peak.at("end").at("least"), 7e11);
  EXPECT_EQ(peak.at("bandwidth").at("best"), 4.1e10);
  EXPECT_EQ(peak.at("not_measured").at("AVX-512 VFMADD231PS"), "not there");
  EXPECT_NEAR(document.at("phases").at("prefill").at("share_of_peak").get<double>(), 0.58 / 1.2,
              1e-12);
}

/// Whatever was measured beside the run, and however its clock went.
TEST(RunReport, HasNoShareOfPeakAboveOne) {
  for (const double flops : {1e9, 5.8e13, 1e14, 1e16, 1e300})
    for (const double start : {1e-300, 1e9, 1e12, 1e18})
      for (const std::optional<double> end : {std::optional<double>(), {1e6}, {1e13}}) {
        RunReport report = books();
        report.phases[1].flops = flops;
        report.phases[2].flops = 3 * flops;
        report.peak->start.best = start;
        if (end) report.peak->end = MeasuredRate{.best = *end};
        const json document = to_json(report);
        for (const char* phase : {"prefill", "decode"}) {
          const double share = document.at("phases").at(phase).at("share_of_peak").get<double>();
          EXPECT_LE(share, 1) << phase << " of " << flops << ", " << start;
          EXPECT_GT(share, 0);
        }
        EXPECT_GE(document.at("peak_flops").get<double>(), start);
      }
}

TEST(RunReport, SaysWhenAPhaseWasFasterThanWhatWasMeasuredBesideIt) {
  RunReport report = books();
  report.phases[1].flops = 2e14;
  EXPECT_EQ(to_json(report).at("peak").at("from"), "prefill");
  EXPECT_NE(last_line(report, "r").find("(100 % of peak)"), std::string::npos);
  EXPECT_NE(last_line(report, "r")
                .find("peak 2.0 TFLOP/s (reached in prefill; AVX2 VFMADD231PS gave 1.0 TFLOP/s"),
            std::string::npos)
      << last_line(report, "r");
}

TEST(MeasuredRate, IsTheBestWindowWithItsSpread) {
  const MeasuredRate rate = measured_rate({3, 1, 5, 2, 4}, 0.25);
  EXPECT_EQ(rate.best, 5);
  EXPECT_EQ(rate.median, 3);
  EXPECT_EQ(rate.least, 1);
  EXPECT_EQ(rate.windows, 5);
  EXPECT_EQ(rate.window_s, 0.25);
  EXPECT_THROW(measured_rate({}, 1), InvalidArgument);
}

TEST(RunReport, AddsUpAllStarts) {
  RunReport report = books();
  report.began_unix_s = 2000;
  report.earlier = {{1000, 98, 10, 1, 2000, 50, 8, 0, 2}, {1500, 100, 0, 0, 1000, 0, 8, 0, 2}};
  const json document = to_json(report);
  ASSERT_EQ(document.at("starts").size(), 3u);
  EXPECT_EQ(document.at("starts")[0], json::parse(R"({"began_unix_s": 1000.0, "seconds": 98.0,
    "done": 10, "failed": 1, "prompt_tokens": 2000, "output_tokens": 50, "cores": 8, "gpus": 0,
    "hosts": 2})"));
  EXPECT_EQ(document.at("starts")[2].at("done"), 64);
  const json& all = document.at("all_starts");
  EXPECT_EQ(all.at("starts"), 3);
  EXPECT_EQ(all.at("seconds"), 900);
  EXPECT_EQ(all.at("done"), 74);
  EXPECT_EQ(all.at("prompt_tokens"), 4'123'000);
  EXPECT_DOUBLE_EQ(all.at("core_hours").get<double>(), (198 * 8 + 702 * 16) / 3600.0);
  EXPECT_DOUBLE_EQ(document.at("core_hours").get<double>(), 702 * 16 / 3600.0);
}

/// A start may be killed after its last result and before its report.
TEST(RunReport, IsFinalOnlyOfTheRunAsItStands) {
  const test::TempFolder folder;
  const auto path = folder / "report.json";
  EXPECT_FALSE(report::is_final_report(path, 3, 1)) << "there is none";
  RunReport report;
  report.counts.done = 2, report.counts.failed = 1;
  report.all_done = 3, report.all_failed = 1;
  report::write_report(path, report);
  EXPECT_TRUE(report::is_final_report(path, 3, 1));
  EXPECT_FALSE(report::is_final_report(path, 4, 1)) << "an earlier start's";
  report.counts.open = 1;
  report::write_report(path, report);
  EXPECT_FALSE(report::is_final_report(path, 3, 1)) << "of a start that was drained";
  std::ofstream(path) << "{";
  EXPECT_FALSE(report::is_final_report(path, 3, 1)) << "damaged";
}

TEST(RunReport, CountsGpuHoursWhereItComputesOnGpus) {
  RunReport report = books();
  report.gpus = 4;
  const json document = to_json(report);
  EXPECT_DOUBLE_EQ(document.at("gpu_hours").get<double>(), 702 * 4 / 3600.0);
  EXPECT_FALSE(document.contains("core_hours"));
  EXPECT_NE(last_line(report, "r").find("(0.8 GPU-hours)"), std::string::npos);
}

TEST(RunReport, ExplainsTimesToTheFirstTokenOfSharedPasses) {
  RunReport report = books();
  report.first_tokens = 64;
  report.shared_first_tokens = 32;
  EXPECT_TRUE(to_json(report).at("ttft_note").is_null());
  report.shared_first_tokens = 33;
  const auto note = to_json(report).at("ttft_note").get<std::string>();
  EXPECT_TRUE(note.starts_with("33 of 64 first tokens came out of passes that read several"));
}

TEST(RunReport, SaysHowOftenTokensCameInTime) {
  RunReport report = books();
  EXPECT_TRUE(to_json(report).at("tbt_goal").is_null());
  report.tbt_goal_s = 0.5;
  report.tbt_s = {0.1, 0.5, 0.2, 0.6};
  const json goal = to_json(report).at("tbt_goal");
  EXPECT_EQ(goal.at("goal_s"), 0.5);
  EXPECT_EQ(goal.at("later"), 1);
  EXPECT_EQ(goal.at("share_kept"), 0.75);
  report.tbt_s.clear();
  EXPECT_TRUE(to_json(report).at("tbt_goal").at("share_kept").is_null());
}

TEST(LastLine, SaysWhatWasDoneHowFastAndWhereToLook) {
  EXPECT_EQ(
      last_line(books(), "runs/books/report.json"),
      "64 done, 0 failed in 11 min 42 s (3.1 core-hours) · 4.1M tokens read, 3.8k written · "
      "prefill "
      "41.2k tok/s (58 % of peak) · decode 1.9k tok/s · exposed communication 3.2 % · peak 1.0 "
      "TFLOP/s (AVX2 VFMADD231PS), 41.0 GB/s · runs/books/report.json");
}

TEST(LastLine, SaysWhatWindowsSpared) {
  RunReport report = books();
  EXPECT_TRUE(to_json(report).at("windows").is_null());
  report.windows = {3 << 20, 24 << 20};
  EXPECT_EQ(json(to_json(report).at("windows")), json::parse(R"({"sent_bytes": 3145728,
    "whole_ring_bytes": 25165824, "saved_share": 0.875})"));
  EXPECT_NE(
      last_line(report, "r").find(" · window layers sent 3.0 MiB, 88 % less than a whole ring · "),
      std::string::npos)
      << last_line(report, "r");
}

TEST(LastLine, OfAContinuedRunHasThisStartAndAllStarts) {
  RunReport report;
  report.counts = {.done = 4, .failed = 1, .prompt_tokens = 4000, .output_tokens = 100};
  report.seconds = 30;
  report.cores = 2;
  report.earlier = {{1000, 60, 2, 0, 3000, 50, 4, 0}};
  EXPECT_EQ(
      last_line(report, "r.json"),
      "this start: 4 done, 1 failed in 30 s (60 core-seconds) · 4.0k tokens read, 100 written · "
      "r.json\n       all 2 starts: 6 done, 1 failed in 1 min 30 s (300 core-seconds) · 7.0k "
      "tokens read, 150 written");
}

TEST(LastLine, OfADrainedRunSaysWhatIsLeftAndLeavesOutWhatIsNotKnown) {
  RunReport report;
  report.counts.done = 38;
  report.counts.failed = 1;
  report.counts.partial = 4;
  report.counts.open = 21;
  report.seconds = 60;
  report.cores = 1;
  EXPECT_EQ(last_line(report, "r.json"),
            "38 done, 1 failed, 25 to continue in 1 min 0 s (60 core-seconds) · 0 tokens read, 0 "
            "written · r.json");
  report.counts.arrived = 50;
  EXPECT_EQ(
      last_line(report, "r.json"),
      "38 done, 1 failed, 25 to continue, 50 arrived in 1 min 0 s (60 core-seconds) · 0 tokens "
      "read, 0 written · r.json");
}

TEST(LastLine, SaysWhatWasCut) {
  RunReport report;
  report.counts.done = 6;
  report.counts.truncated_turns = 3;
  report.counts.truncated_tokens = 900;
  EXPECT_EQ(last_line(report, "r.json"),
            "6 done, 0 failed in 0 ms (0 core-seconds) · 0 tokens read, 0 written · 3 prompts "
            "truncated · r.json");
  report.counts.cut_by_length = 3;
  report.counts.cut_by_model_length = 1;
  EXPECT_EQ(last_line(report, "r.json"),
            "6 done, 0 failed in 0 ms (0 core-seconds) · 0 tokens read, 0 written · 3 prompts "
            "truncated, 2 answers cut at max_new_tokens, 1 answer cut at the model's length · "
            "r.json");
  report.counts.cut_by_model_length = 3;
  report.counts.truncated_turns = 0;
  EXPECT_EQ(cut_text(report.counts), "3 answers cut at the model's length");
  EXPECT_EQ(cut_text({}), "");
}

TEST(LastLine, SaysHowMuchWasReadFromAnEarlierStart) {
  RunReport report;
  report.seconds = 60;
  report.kv.restored_requests = 1;
  report.kv.restored_tokens = 512'000;
  EXPECT_EQ(last_line(report, "r.json"),
            "0 done, 0 failed in 1 min 0 s (0 core-seconds) · 0 tokens read, 0 written · restored "
            "512k tokens of 1 request · r.json");
  EXPECT_EQ(to_json(report).at("kv").at("restored_tokens"), 512'000);
}

TEST(KeptLine, SaysWhatWasKeptAndWhatWasNot) {
  KvReport kv;
  EXPECT_EQ(kept_line(kv), "");
  kv.not_worth_keeping = 1;
  EXPECT_EQ(kept_line(kv), "kept no keys and values: 1 request is cheaper to read again");
  kv.kept_requests = 3;
  kv.kept_bytes = 1288490189;
  kv.keep_s = 4.1;
  EXPECT_EQ(kept_line(kv),
            "kept the keys and values of 3 requests (1.2 GiB in 4.1 s); 1 request is cheaper to "
            "read again");
  kv.not_worth_keeping = 0;
  EXPECT_EQ(kept_line(kv), "kept the keys and values of 3 requests (1.2 GiB in 4.1 s)");
}

}  // namespace
}  // namespace pecia::report
