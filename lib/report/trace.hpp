// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Spans as trace-event JSON packed by gzip, which Perfetto (ui.perfetto.dev) and chrome://tracing
/// open as it is: one process per replica, one track per rank. Every rank writes a complete file of
/// its own; of small runs one file is made of them, which takes their place.

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

/// Above so many ranks, or so many bytes of their files, one file is too large to be looked at; the
/// ranks' files can be.
inline constexpr int max_merged_ranks = 64;
inline constexpr int64_t max_merged_bytes = 16 << 20;

/// rank-00012.json.gz
std::string trace_file_name(int rank);
inline constexpr const char* merged_trace_name = "trace.json.gz";

/// Writes `path` whole (as write_atomically does). A span is named phase/layer/op ("prefill/layer
/// 3/attention") after the longest phase span of its pass; its args are pass, bytes and flops.
void write_trace(const std::filesystem::path& path, const Track& track, const Recorder& recorder);

/// Writes `merged` from files of write_trace, without holding any of them in memory. Throws
/// SystemError naming the file that is missing, cut short or not such a file.
void merge_traces(const std::vector<std::filesystem::path>& files,
                  const std::filesystem::path& merged);

/// Leaves each span in `folder` once: one merged file where `ranks` files of write_trace are few
/// and small enough, else these, and no file of an earlier start, whatever its ranks were. Until it
/// is done all that was written stays readable.
void tidy_traces(const std::filesystem::path& folder, int ranks);

}  // namespace pecia::report
