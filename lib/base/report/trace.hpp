// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes spans as trace-event JSON packed by gzip, which Perfetto (ui.perfetto.dev) and
/// chrome://tracing open directly. There is one process per replica and one track per rank. Every
/// rank writes a complete file of its own. For small runs one merged file replaces them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/base/report/spans.hpp"

namespace pecia::report {

/// The rank that the spans belong to, and its offset on the job's time axis.
struct Track {
  int replica = 0;
  int rank = 0;  ///< rank in the job
  std::string host;
  /// Added to every time, because each recorder counts from its own start. It is the largest of all
  /// ranks' Recorder::now_ns() read after one barrier, minus the value of this rank.
  int64_t offset_ns = 0;
};

/// With more ranks or more bytes than these, a merged file would be too large to view, so the
/// ranks' files are kept.
inline constexpr int max_merged_ranks = 64;
inline constexpr int64_t max_merged_bytes = 16 << 20;

/// rank-00012.json.gz
std::string trace_file_name(int rank);
inline constexpr const char* merged_trace_name = "trace.json.gz";

/// Writes `path` as write_atomically does. A span is named phase/layer/op ("prefill/layer
/// 3/attention") after the longest phase span of its pass. Its args are pass, bytes and flops.
void write_trace(const std::filesystem::path& path, const Track& track, const Recorder& recorder);

/// Merges files of write_trace into `merged` without holding any of them in memory. Throws
/// SystemError naming the file that is missing, cut short or not a trace file.
void merge_traces(const std::vector<std::filesystem::path>& files,
                  const std::filesystem::path& merged);

/// Tidies `folder` so that it holds each span once: in one merged file if the `ranks` files of
/// write_trace are few and small enough, else in these files. Removes the files of earlier starts,
/// whatever their number of ranks was. Until it is done, all earlier files stay readable.
void tidy_traces(const std::filesystem::path& folder, int ranks);

}  // namespace pecia::report
