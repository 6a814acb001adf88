// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/trace.hpp"

#include <cmath>

#include "lib/report/trace.hpp"

namespace pecia::foresight {
namespace {

int64_t nanoseconds(double seconds) {
  return std::llround(1e9 * seconds);
}

}  // namespace

PassTime write_trace(const std::vector<Program>& programs, const machines::Cluster& cluster,
                     const char* phase, const std::filesystem::path& folder) {
  std::vector<report::Recorder> recorders;
  for (size_t rank = 0; rank < programs.size(); ++rank)
    recorders.emplace_back(report::TraceDetail::full);
  const PassTime time = replay(programs, cluster, [&](const Moment& moment) {
    const auto* const op = std::get_if<kernels::OpWork>(&moment.step.what);
    const bool waits = std::holds_alternative<Wait>(moment.step.what);
    recorders[moment.rank].add({moment.step.span,
                                waits ? report::Kind::comm : report::Kind::compute, moment.layer, 0,
                                nanoseconds(moment.begin_s), nanoseconds(moment.end_s),
                                moment.bytes, op != nullptr ? op->flops : 0});
  });
  const auto ranks = static_cast<int>(programs.size());
  for (int rank = 0; rank < ranks; ++rank) {
    recorders[rank].add(
        {phase, report::Kind::phase, -1, 0, 0, nanoseconds(time.ranks[rank].end_s), 0, 0});
    report::write_trace(folder / report::trace_file_name(rank),
                        {.rank = rank, .host = cluster.place(rank).server}, recorders[rank]);
  }
  report::tidy_traces(folder, ranks);
  return time;
}

}  // namespace pecia::foresight
