// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/base/report/gzip.hpp"

namespace pecia::report {
namespace {

// Between the first and the last line there is one event per line, so merging copies lines.
constexpr std::string_view header_line = R"({"displayTimeUnit":"ms","traceEvents":[)";
constexpr std::string_view footer_begin = R"(],"otherData":)";

/// What the last line says about the lines before it.
struct Footer {
  int ranks = 0;
  int64_t dropped_spans = 0;
  double end_us = 0;  ///< end of the last span
};

std::string footer_line(const Footer& footer) {
  return fmt::format(R"({}{{"ranks":{},"dropped_spans":{},"end_us":{:.3f}}}}})", footer_begin,
                     footer.ranks, footer.dropped_spans, footer.end_us);
}

const char* category(Kind kind) {
  switch (kind) {
    case Kind::compute:
      return "compute";
    case Kind::comm:
      return "comm";
    case Kind::idle:
      return "idle";
    case Kind::phase:
      return "phase";
  }
  return "?";
}

std::string metadata_event(const Track& track, const char* name,
                           const nlohmann::ordered_json& args) {
  return json_text(nlohmann::ordered_json{
      {"name", name}, {"ph", "M"}, {"pid", track.replica}, {"tid", track.rank}, {"args", args}});
}

/// The longest phase of each pass, whose name begins the names of its ops.
std::map<int64_t, const Span*> phases_by_pass(const std::vector<Span>& spans) {
  std::map<int64_t, const Span*> phases;
  for (const Span& span : spans) {
    if (span.kind != Kind::phase || span.pass < 0) continue;
    const Span*& phase = phases[span.pass];
    if (phase == nullptr || span.end_ns - span.begin_ns > phase->end_ns - phase->begin_ns)
      phase = &span;
  }
  return phases;
}

std::string full_name(const Span& span, const Span* phase) {
  std::string name = phase != nullptr && phase != &span ? fmt::format("{}/", phase->name) : "";
  if (span.layer >= 0) name += fmt::format("layer {}/", span.layer);
  return name + span.name;
}

/// Formats a span by hand, because spans are most of the file and a JSON value per span takes
/// several times as long.
std::string span_event(const Track& track, const Span& span, const Span* phase) {
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) / 1000; };
  return fmt::format(
      R"({{"name":{},"cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},)"
      R"("args":{{"pass":{},"bytes":{},"flops":{}}}}})",
      json_text(nlohmann::json(full_name(span, phase))), category(span.kind),
      microseconds(span.begin_ns + track.offset_ns), microseconds(span.end_ns - span.begin_ns),
      track.replica, track.rank, span.pass, span.bytes,
      std::isfinite(span.flops) ? fmt::to_string(span.flops) : "null");
}

std::string note_event(const Track& track, const Note& note) {
  nlohmann::ordered_json args = {{"pass", note.pass}};
  for (const auto& [name, value] : note.values) args[name] = value;
  args["outcome"] = note.outcome;
  return json_text(
      nlohmann::ordered_json{{"name", note.name},
                             {"cat", "note"},
                             {"ph", "i"},
                             {"s", "t"},
                             {"ts", static_cast<double>(note.at_ns + track.offset_ns) / 1000},
                             {"pid", track.replica},
                             {"tid", track.rank},
                             {"args", args}});
}

std::string curve_event(const Track& track, const Curves& curves) {
  nlohmann::ordered_json args;
  for (const auto& [name, value] : curves.values) args[name] = value;
  return json_text(
      nlohmann::ordered_json{{"name", curves.name},
                             {"cat", "curves"},
                             {"ph", "C"},
                             {"ts", static_cast<double>(curves.at_ns + track.offset_ns) / 1000},
                             {"pid", track.replica},
                             {"tid", track.rank},
                             {"args", args}});
}

/// Puts events one per line, with the commas between them.
class EventList {
 public:
  explicit EventList(std::ostream& out) : out_(out) { out_ << header_line; }
  void add(std::string_view event) {
    out_ << (empty_ ? "\n" : ",\n") << event;
    empty_ = false;
  }
  void close(std::string_view footer) { out_ << '\n' << footer << '\n'; }

 private:
  std::ostream& out_;
  bool empty_ = true;
};

/// Packs and writes a file as write_atomically does.
void write_packed(const std::filesystem::path& path,
                  const std::function<void(std::ostream&)>& write) {
  write_atomically(path, [&](std::ostream& out) {
    GzipBuffer buffer(out);
    std::ostream packed(&buffer);
    write(packed);
    buffer.finish();
  });
}

bool is_trace_of_rank(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("rank-") && (name.ends_with(".json") || name.ends_with(".json.gz"));
}

/// Copies a file's events into `events` and returns what its last line says.
Footer copy_events(const std::filesystem::path& path, EventList& events) {
  GzipLines in(path);
  std::string line;
  if (!in.next(line) || line != header_line)
    fail<SystemError>("{}: is missing or no trace of one rank", path.string());
  while (in.next(line)) {
    if (line.starts_with(footer_begin)) {
      const auto footer = try_json<nlohmann::json>(fmt::format("{{{}", line.substr(2)));
      if (footer.is_discarded()) break;
      const auto& data = footer.at("otherData");
      return {1, data.at("dropped_spans").get<int64_t>(), data.at("end_us").get<double>()};
    }
    if (line.ends_with(',')) line.pop_back();
    events.add(line);
  }
  fail<SystemError>("{}: is cut short; it has no last line", path.string());
}

}  // namespace

std::string trace_file_name(int rank) {
  return fmt::format("rank-{:05}.json.gz", rank);
}

void write_trace(const std::filesystem::path& path, const Track& track, const Recorder& recorder) {
  const auto phases = phases_by_pass(recorder.spans());
  write_packed(path, [&](std::ostream& out) {
    EventList events(out);
    events.add(metadata_event(track, "process_name",
                              {{"name", fmt::format("replica {}", track.replica)}}));
    events.add(
        metadata_event(track, "thread_name",
                       {{"name", fmt::format("rank {} (host {})", track.rank, track.host)}}));
    events.add(metadata_event(track, "thread_sort_index", {{"sort_index", track.rank}}));
    for (const Span& span : recorder.spans()) {
      const auto phase = phases.find(span.pass);
      events.add(span_event(track, span, phase == phases.end() ? nullptr : phase->second));
    }
    for (const Note& note : recorder.notes()) events.add(note_event(track, note));
    for (const Curves& curves : recorder.curves()) events.add(curve_event(track, curves));
    Footer footer{1, recorder.dropped()};
    for (const Span& span : recorder.spans())
      footer.end_us =
          std::max(footer.end_us, static_cast<double>(span.end_ns + track.offset_ns) / 1000);
    events.close(footer_line(footer));
  });
}

void merge_traces(const std::vector<std::filesystem::path>& files,
                  const std::filesystem::path& merged) {
  write_packed(merged, [&](std::ostream& out) {
    EventList events(out);
    Footer all{static_cast<int>(files.size())};
    for (const auto& file : files) {
      const Footer one = copy_events(file, events);
      all.dropped_spans += one.dropped_spans;
      all.end_us = std::max(all.end_us, one.end_us);
    }
    events.close(footer_line(all));
  });
}

void tidy_traces(const std::filesystem::path& folder, int ranks) {
  namespace fs = std::filesystem;
  std::set<fs::path> own;
  std::vector<fs::path> files;
  int64_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    files.push_back(folder / trace_file_name(rank));
    std::error_code missing;  // merge_traces reports a missing file
    bytes += static_cast<int64_t>(fs::file_size(files.back(), missing));
    own.insert(files.back());
  }
  const fs::path merged = folder / merged_trace_name;
  const bool merges = ranks <= max_merged_ranks && bytes <= max_merged_bytes;
  if (merges) {
    merge_traces(files, merged);
    own = {merged};
  }
  std::vector<fs::path> old{folder / "trace.json"};  // the name that earlier versions wrote
  if (!merges) old.push_back(merged);
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_trace_of_rank(entry.path()) && own.count(entry.path()) == 0) old.push_back(entry.path());
  for (const fs::path& file : old) {
    std::error_code gone;  // a file that cannot be removed stays beside the new one
    fs::remove(file, gone);
  }
}

}  // namespace pecia::report
