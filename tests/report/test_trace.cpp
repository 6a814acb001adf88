// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "lib/base/report/atomic_file.hpp"
#include "lib/base/report/gzip.hpp"
#include "lib/base/report/trace.hpp"
#include "tests/support/temp_folder.hpp"

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

/// What a packed file holds.
std::string unpacked(const std::filesystem::path& path) {
  GzipLines lines(path);
  std::string text, line;
  while (lines.next(line)) text += line + "\n";
  return text;
}

json events_named(const json& trace, const std::string& name) {
  json found = json::array();
  for (const json& event : trace.at("traceEvents"))
    if (event.at("name") == name) found.push_back(event);
  return found;
}

TEST(TraceFileName, SortsByRank) {
  EXPECT_EQ(trace_file_name(12), "rank-00012.json.gz");
  EXPECT_EQ(trace_file_name(123456), "rank-123456.json.gz");
}

TEST(WriteTrace, NamesATrackPerRankInAProcessPerReplica) {
  const TempFolder folder;
  write_trace(folder / "t.json.gz", {2, 12, "n3", 0}, small_run());
  const json trace = json::parse(unpacked(folder / "t.json.gz"));
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
  write_trace(folder / "t.json.gz", {0, 1, "n0", 10'000}, small_run());
  const json trace = json::parse(unpacked(folder / "t.json.gz"));
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
  write_trace(folder / "t.json.gz", {2, 12, "n3", 0}, recorder);
  json note = events_named(json::parse(unpacked(folder / "t.json.gz")), "ring_rule").at(0);
  EXPECT_GE(note.at("ts"), 0);
  note.erase("ts");
  EXPECT_EQ(note, json::parse(R"({"name":"ring_rule","cat":"note","ph":"i","s":"t","pid":2,"tid":12,
    "args":{"pass":9,"new_tokens":1280.0,"bandwidth":2.6e10,"outcome":"pass_q"}})"));
}

TEST(WriteTrace, HasCurvesAsCounters) {
  Recorder recorder(TraceDetail::summary);
  recorder.draw("instances", {{"reading", 3}, {"answering", 1}});
  Recorder without;
  without.draw("instances", {{"reading", 3}});
  EXPECT_TRUE(without.curves().empty());
  const TempFolder folder;
  write_trace(folder / "t.json.gz", {2, 12, "n3", 0}, recorder);
  json counts = events_named(json::parse(unpacked(folder / "t.json.gz")), "instances").at(0);
  EXPECT_GE(counts.at("ts"), 0);
  counts.erase("ts");
  EXPECT_EQ(counts, json::parse(R"({"name":"instances","cat":"curves","ph":"C","pid":2,"tid":12,
    "args":{"reading":3.0,"answering":1.0}})"));
}

TEST(WriteTrace, IsValidJsonWhateverTheSpansHold) {
  Recorder recorder(TraceDetail::full, 2);
  recorder.add(
      {"quote \" backslash \\ newline \n not UTF-8 \xff", Kind::compute, -1, 0, 0, 1, 0, NAN});
  recorder.add({"huge", Kind::compute, -1, 0, 0, INT64_MAX / 2, INT64_MAX, INFINITY});
  recorder.add({"dropped", Kind::compute, -1, 0, 0, 1, 0, 0});
  const TempFolder folder;
  write_trace(folder / "t.json.gz", {0, 0, "host \"a\"", 0}, recorder);
  const json trace = json::parse(unpacked(folder / "t.json.gz"));
  EXPECT_EQ(trace.at("otherData").at("dropped_spans"), 1);
  EXPECT_TRUE(events_named(trace, "huge")[0].at("args").at("flops").is_null());
}

TEST(WriteTrace, OfNoSpansIsATrackWithoutEvents) {
  const TempFolder folder;
  write_trace(folder / "t.json.gz", {0, 0, "n0", 0}, Recorder());
  const json trace = json::parse(unpacked(folder / "t.json.gz"));
  EXPECT_EQ(trace.at("traceEvents").size(), 3u);
  for (const json& event : trace.at("traceEvents")) EXPECT_EQ(event.at("ph"), "M");
}

TEST(MergeTraces, HoldsEveryEventOfEveryFileInOrder) {
  const TempFolder folder;
  Recorder full(TraceDetail::full, 1);
  full.add({"kept", Kind::compute, -1, 0, 0, 1, 0, 0});
  full.add({"dropped", Kind::compute, -1, 0, 1, 2, 0, 0});
  write_trace(folder / "0.json.gz", {0, 0, "n0", 0}, small_run());
  write_trace(folder / "1.json.gz", {1, 1, "n1", 0}, full);
  merge_traces({folder / "0.json.gz", folder / "1.json.gz"}, folder / "trace.json.gz");

  json expected = json::array();
  for (const char* name : {"0.json.gz", "1.json.gz"}) {
    const json trace = json::parse(unpacked(folder / name));
    for (const json& event : trace.at("traceEvents")) expected.push_back(event);
  }
  const json merged = json::parse(unpacked(folder / "trace.json.gz"));
  EXPECT_EQ(merged.at("traceEvents"), expected);
  EXPECT_EQ(merged.at("otherData"), json::parse(R"({"ranks":2,"dropped_spans":1,"end_us":9.5})"));
}

TEST(MergeTraces, OfNoFilesIsValid) {
  const TempFolder folder;
  merge_traces({}, folder / "trace.json.gz");
  EXPECT_TRUE(json::parse(unpacked(folder / "trace.json.gz")).at("traceEvents").empty());
}

TEST(MergeTraces, RefusesMissingForeignAndCutFilesAndWritesNothing) {
  const TempFolder folder;
  write_trace(folder / "whole.gz", {0, 0, "n0", 0}, small_run());
  const std::string whole = text_of(folder / "whole.gz");
  write_atomically(folder / "cut.gz", whole.substr(0, whole.size() / 2));
  write_atomically(folder / "cut_plain.gz", unpacked(folder / "whole.gz").substr(0, 300));
  write_atomically(folder / "foreign.gz", "{\"a\": 1}\n");
  for (const char* name : {"missing.gz", "cut.gz", "cut_plain.gz", "foreign.gz"}) {
    try {
      merge_traces({folder / "whole.gz", folder / name}, folder / "trace.json.gz");
      ADD_FAILURE() << name << " was merged";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "trace.json.gz"));
  }
}

std::set<std::string> names_in(const TempFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.insert(entry.path().filename().string());
  return names;
}

TEST(TidyTraces, LeavesOneFileOfAFewRanks) {
  const TempFolder folder;
  for (int rank = 0; rank < 3; ++rank)
    write_trace(folder / trace_file_name(rank), {0, rank, "n0", 0}, small_run());
  tidy_traces(folder.path(), 2);
  EXPECT_EQ(names_in(folder), std::set<std::string>{"trace.json.gz"})
      << "the third rank was an earlier start's";
  const json trace = json::parse(unpacked(folder / "trace.json.gz"));
  EXPECT_EQ(events_named(trace, "prefill").size(), 2u);
  EXPECT_EQ(trace.at("otherData").at("end_us"), 9.5);
}

TEST(TidyTraces, LeavesTheFilesOfManyRanksAndNothingOlder) {
  const TempFolder folder;
  constexpr int ranks = max_merged_ranks + 1;
  std::set<std::string> expected;
  for (int rank = 0; rank < ranks + 2; ++rank)
    write_trace(folder / trace_file_name(rank), {0, rank, "n0", 0}, Recorder());
  for (int rank = 0; rank < ranks; ++rank) expected.insert(trace_file_name(rank));
  for (const char* old : {"trace.json", "trace.json.gz", "rank-00000.json"})
    write_atomically(folder / old, "old");
  write_atomically(folder / "notes.txt", "the user's");
  expected.insert("notes.txt");
  tidy_traces(folder.path(), ranks);
  EXPECT_EQ(names_in(folder), expected);
}

TEST(GzipBuffer, PacksMoreThanItsBuffersHoldIntoOneMember) {
  const TempFolder folder;
  std::string text;
  for (int line = 0; line < 40'000; ++line)
    text += fmt::format("line {} {}\n", line, line * 2654435761u);
  write_atomically(folder / "text.gz", [&](std::ostream& out) {
    GzipBuffer buffer(out);
    std::ostream packed(&buffer);
    packed << text << std::flush;
    buffer.finish();
  });
  const std::string packed = text_of(folder / "text.gz");
  EXPECT_TRUE(packed.starts_with("\x1f\x8b"));
  EXPECT_LT(packed.size(), text.size() / 2);
  EXPECT_EQ(unpacked(folder / "text.gz"), text);
}

TEST(WriteTrace, IsPackedToAFractionOfItsText) {
  Recorder recorder(TraceDetail::full);
  for (int64_t i = 0; i < 20'000; ++i)
    recorder.add({"attention", Kind::compute, static_cast<int32_t>(i % 30), i / 30,
                  1000 * i + i % 7, 1000 * i + 800 + i % 11, 64, 2.5e9});
  const TempFolder folder;
  write_trace(folder / "t.json.gz", {0, 0, "n0", 0}, recorder);
  const size_t plain = unpacked(folder / "t.json.gz").size();
  EXPECT_LT(std::filesystem::file_size(folder / "t.json.gz"), plain / 8);
}

}  // namespace
}  // namespace pecia::report
