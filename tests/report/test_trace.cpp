#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/report/atomic_file.hpp"
#include "lib/report/trace.hpp"
#include "tests/report/temp_folder.hpp"

namespace pecia::report {
namespace {

using nlohmann::json;
using test::TempFolder;
using test::text_of;

/// Pass 4, a prefill of 9 µs: attention of layer 3 with a transfer after it; then a span of no
/// pass.
Recorder small_run() {
  Recorder recorder(TraceDetail::full);
  recorder.add({"attention", Kind::compute, 3, 4, 1000, 3500, 64, 2.5e9});
  recorder.add({"ring", Kind::comm, 3, 4, 3500, 4000, 128, 0});
  recorder.add({"layer", Kind::phase, 3, 4, 1000, 4000, 0, 0});
  recorder.add({"prefill", Kind::phase, -1, 4, 500, 9500, 0, 0});
  recorder.add({"wait", Kind::idle, -1, -1, 0, 500, 0, 0});
  recorder.add({"load", Kind::phase, -1, -1, 0, 400, 0, 0});
  return recorder;
}

json events_named(const json& trace, const std::string& name) {
  json found = json::array();
  for (const json& event : trace.at("traceEvents"))
    if (event.at("name") == name) found.push_back(event);
  return found;
}

TEST(TraceFileName, SortsByRank) {
  EXPECT_EQ(trace_file_name(12), "rank-00012.json");
  EXPECT_EQ(trace_file_name(123456), "rank-123456.json");
}

TEST(WriteTrace, NamesATrackPerRankInAProcessPerReplica) {
  const TempFolder folder;
  write_trace(folder / "t.json", {2, 12, "n3", 0}, small_run());
  const json trace = json::parse(text_of(folder / "t.json"));
  const json process = events_named(trace, "process_name"),
             thread = events_named(trace, "thread_name");
  ASSERT_EQ(process.size(), 1u);
  ASSERT_EQ(thread.size(), 1u);
  EXPECT_EQ(
      process[0],
      json::parse(
          R"({"name":"process_name","ph":"M","pid":2,"tid":12,"args":{"name":"replica 2"}})"));
  EXPECT_EQ(thread[0].at("args").at("name"), "rank 12 (host n3)");
  for (const json& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 2);
    EXPECT_EQ(event.at("tid"), 12);
  }
}

TEST(WriteTrace, NamesSpansByPhaseLayerAndOp) {
  const TempFolder folder;
  write_trace(folder / "t.json", {0, 1, "n0", 10'000}, small_run());
  const json trace = json::parse(text_of(folder / "t.json"));
  const json attention = events_named(trace, "prefill/layer 3/attention");
  ASSERT_EQ(attention.size(), 1u);
  EXPECT_EQ(attention[0],
            json::parse(R"({"name":"prefill/layer 3/attention","cat":"compute","ph":"X",
    "ts":11.0,"dur":2.5,"pid":0,"tid":1,"args":{"pass":4,"bytes":64,"flops":2.5e9}})"));
  EXPECT_EQ(events_named(trace, "prefill/layer 3/ring")[0].at("cat"), "comm");
  EXPECT_EQ(events_named(trace, "prefill").size(), 1u);
  EXPECT_EQ(events_named(trace, "load").size(), 1u);
  EXPECT_EQ(events_named(trace, "wait").size(), 1u);
}

TEST(WriteTrace, HasNotesAsInstantsWithTheirNumbers) {
  Recorder recorder(TraceDetail::summary);
  recorder.set_pass(9);
  recorder.note("ring_rule", {{"new_tokens", 1280}, {"bandwidth", 2.6e10}}, "pass_q");
  const TempFolder folder;
  write_trace(folder / "t.json", {2, 12, "n3", 0}, recorder);
  json note = events_named(json::parse(text_of(folder / "t.json")), "ring_rule").at(0);
  EXPECT_GE(note.at("ts"), 0);
  note.erase("ts");
  EXPECT_EQ(note, json::parse(R"({"name":"ring_rule","cat":"note","ph":"i","s":"t","pid":2,"tid":12,
    "args":{"pass":9,"new_tokens":1280.0,"bandwidth":2.6e10,"outcome":"pass_q"}})"));
}

TEST(WriteTrace, IsValidJsonWhateverTheSpansHold) {
  Recorder recorder(TraceDetail::full, 2);
  recorder.add(
      {"quote \" backslash \\ newline \n not UTF-8 \xff", Kind::compute, -1, 0, 0, 1, 0, NAN});
  recorder.add({"huge", Kind::compute, -1, 0, 0, INT64_MAX / 2, INT64_MAX, INFINITY});
  recorder.add({"dropped", Kind::compute, -1, 0, 0, 1, 0, 0});
  const TempFolder folder;
  write_trace(folder / "t.json", {0, 0, "host \"a\"", 0}, recorder);
  const json trace = json::parse(text_of(folder / "t.json"));
  EXPECT_EQ(trace.at("otherData").at("dropped_spans"), 1);
  EXPECT_TRUE(events_named(trace, "huge")[0].at("args").at("flops").is_null());
}

TEST(WriteTrace, OfNoSpansIsATrackWithoutEvents) {
  const TempFolder folder;
  write_trace(folder / "t.json", {0, 0, "n0", 0}, Recorder());
  const json trace = json::parse(text_of(folder / "t.json"));
  EXPECT_EQ(trace.at("traceEvents").size(), 3u);
  for (const json& event : trace.at("traceEvents")) EXPECT_EQ(event.at("ph"), "M");
}

TEST(MergeTraces, HoldsEveryEventOfEveryFileInOrder) {
  const TempFolder folder;
  Recorder full(TraceDetail::full, 1);
  full.add({"kept", Kind::compute, -1, 0, 0, 1, 0, 0});
  full.add({"dropped", Kind::compute, -1, 0, 1, 2, 0, 0});
  write_trace(folder / "0.json", {0, 0, "n0", 0}, small_run());
  write_trace(folder / "1.json", {1, 1, "n1", 0}, full);
  merge_traces({folder / "0.json", folder / "1.json"}, folder / "trace.json");

  json expected = json::array();
  for (const char* name : {"0.json", "1.json"}) {
    const json trace = json::parse(text_of(folder / name));
    for (const json& event : trace.at("traceEvents")) expected.push_back(event);
  }
  const json merged = json::parse(text_of(folder / "trace.json"));
  EXPECT_EQ(merged.at("traceEvents"), expected);
  EXPECT_EQ(merged.at("otherData"), json::parse(R"({"ranks":2,"dropped_spans":1})"));
}

TEST(MergeTraces, OfNoFilesIsValid) {
  const TempFolder folder;
  merge_traces({}, folder / "trace.json");
  EXPECT_TRUE(json::parse(text_of(folder / "trace.json")).at("traceEvents").empty());
}

TEST(MergeTraces, RefusesMissingForeignAndCutFilesAndWritesNothing) {
  const TempFolder folder;
  write_trace(folder / "whole.json", {0, 0, "n0", 0}, small_run());
  const std::string whole = text_of(folder / "whole.json");
  write_atomically(folder / "cut.json", whole.substr(0, whole.size() / 2));
  write_atomically(folder / "cut_footer.json", whole.substr(0, whole.size() - 4));
  write_atomically(folder / "foreign.json", "{\"a\": 1}\n");
  for (const char* name : {"missing.json", "cut.json", "cut_footer.json", "foreign.json"}) {
    try {
      merge_traces({folder / "whole.json", folder / name}, folder / "trace.json");
      ADD_FAILURE() << name << " was merged";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "trace.json"));
  }
}

}  // namespace
}  // namespace pecia::report
