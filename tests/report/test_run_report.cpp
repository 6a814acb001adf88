#include <gtest/gtest.h>

#include <cmath>

#include "lib/core/build_info.hpp"
#include "lib/core/error.hpp"
#include "lib/report/run_report.hpp"
#include "tests/report/temp_folder.hpp"

namespace pecia::report {
namespace {

using nlohmann::json;

/// Two ranks, 100 s, half of the measured peak in prefill.
RunReport books() {
  RunReport report;
  report.job = {{"model", {{"path", "models/qwen3"}}}};
  report.grid = {{"cp", 2}, {"tp", 1}};
  report.counts = {64, 0, 0, 0, 4'120'000, 0, 3800};
  report.seconds = 702;
  report.phases = {{"load", 10, 0, 0}, {"prefill", 100, 4'120'000, 5.8e13}, {"decode", 2, 3800, 0}};
  report.stages = {{"attention", "compute", 320, 60.5, 4e13, 1'000'000}};
  report.ttft_s = {3, 1, 2};
  report.ranks = {{0, "n0", 90, 5, 5, 1000}, {1, "n1", 80, 1.2, 12.353, 2000}};
  report.links = {{"ring", "rack", 12, 4096}};
  report.peak_flops = 1e12;
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
  EXPECT_TRUE(document.at("peak_flops").is_null());
  EXPECT_TRUE(document.at("ttft_s").is_null());
  EXPECT_TRUE(document.at("exposed_communication").is_null());
  EXPECT_TRUE(document.at("ranks").is_array() && document.at("ranks").empty());
  EXPECT_TRUE(document.at("phases").is_object() && document.at("phases").empty());
  EXPECT_TRUE(document.at("errors").is_array() && document.at("errors").empty());

  RunReport report = books();
  report.peak_flops.reset();
  report.phases[1].seconds = 0;
  const json prefill = to_json(report).at("phases").at("prefill");
  EXPECT_TRUE(prefill.at("tokens_per_s").is_null());
  EXPECT_TRUE(prefill.at("share_of_peak").is_null());
}

TEST(RunReport, IsWrittenAsValidJsonWhateverTheErrorsSay) {
  const test::TempFolder folder;
  write_report(folder / "runs/report.json", books());
  const json document = json::parse(test::text_of(folder / "runs/report.json"));
  EXPECT_EQ(document.at("errors").size(), 1u);
  EXPECT_EQ(document.at("counts"), json(to_json(books()).at("counts")));
}

TEST(LastLine, SaysWhatWasDoneHowFastAndWhereToLook) {
  EXPECT_EQ(
      last_line(books(), "runs/books/report.json"),
      "64 done, 0 failed in 11 min 42 s · prefill 41.2k tok/s (58 % of peak) · decode 1.9k tok/s · "
      "exposed communication 3.2 % · runs/books/report.json");
}

TEST(LastLine, OfADrainedRunSaysWhatIsLeftAndLeavesOutWhatIsNotKnown) {
  RunReport report;
  report.counts.done = 38;
  report.counts.failed = 1;
  report.counts.partial = 4;
  report.counts.open = 21;
  report.seconds = 60;
  EXPECT_EQ(last_line(report, "r.json"), "38 done, 1 failed, 25 to continue in 1 min 0 s · r.json");
  report.counts.arrived = 50;
  EXPECT_EQ(last_line(report, "r.json"),
            "38 done, 1 failed, 25 to continue, 50 arrived in 1 min 0 s · r.json");
}

TEST(LastLine, SaysHowMuchWasReadFromAnEarlierStart) {
  RunReport report;
  report.seconds = 60;
  report.kv.restored_requests = 1;
  report.kv.restored_tokens = 512'000;
  EXPECT_EQ(last_line(report, "r.json"),
            "0 done, 0 failed in 1 min 0 s · restored 512k tokens of 1 request · r.json");
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
