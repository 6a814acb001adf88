#pragma once
/// Spans as trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open: one
/// process per replica, one track per rank. Every rank writes a complete file of its own; small
/// runs get one file more, merged from them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/report/spans.hpp"

namespace pecia::report {

/// Whose spans they are, and where on the job's time axis.
struct Track {
  int replica = 0;
  int rank = 0;  ///< of the job
  std::string host;
  /// Added to every time, because each recorder counts from its own start: the largest of all
  /// ranks' Recorder::now_ns() read after one barrier, minus this rank's.
  int64_t offset_ns = 0;
};

/// Above this many ranks one merged file is too large to be looked at; the ranks' files can be.
inline constexpr int max_merged_ranks = 64;

/// rank-00012.json
std::string trace_file_name(int rank);

/// Writes `path` whole (as write_atomically does). A span is named phase/layer/op ("prefill/layer
/// 3/attention") after the longest phase span of its pass; its args are pass, bytes and flops.
void write_trace(const std::filesystem::path& path, const Track& track, const Recorder& recorder);

/// Writes `merged` from files of write_trace, without holding any of them in memory. Throws
/// SystemError naming the file that is missing, cut short or not such a file.
void merge_traces(const std::vector<std::filesystem::path>& files,
                  const std::filesystem::path& merged);

}  // namespace pecia::report
