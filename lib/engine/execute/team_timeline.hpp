// SPDX-License-Identifier: Apache-2.0
#pragma once
/// When which instances worked in teams, for a picture of a run: bounded in size, however long the
/// run is.

#include <cstdint>
#include <vector>

#include "lib/base/core/archive.hpp"
#include "lib/engine/schedule/plan.hpp"

namespace pecia::execute {

/// Passes of one team in turn that did the same.
struct TeamSpan {
  double begin_s = 0, end_s = 0;   ///< on the passes' clock
  std::vector<int32_t> instances;  ///< the workers, then the holders
  int32_t workers = 0;
  uint8_t prompts = 0;   ///< 1: read prompts; 0: made answers alone
  int64_t sequence = 0;  ///< of the first row

  template <typename A>
  void visit(A& archive) {
    archive(begin_s), archive(end_s), archive(instances), archive(workers), archive(prompts),
        archive(sequence);
  }
};

class TeamTimeline {
 public:
  /// Most spans that are kept. When there are more, the short ones are left out from then on.
  static constexpr size_t most_spans = 4096;

  /// Adds a pass of the plan's team. A pass that follows one of the same team, kind and first
  /// sequence within 20 ms makes the span longer.
  void add(const schedule::Plan& plan, double begin_s, double end_s);

  /// In the order in which their first passes ended.
  const std::vector<TeamSpan>& spans() const { return spans_; }
  /// Spans shorter than this may be missing.
  double least_s() const { return least_s_; }

  template <typename A>
  void visit(A& archive) {
    archive(least_s_);
    visit_all(archive, spans_);
  }

 private:
  void leave_out_short_ones();

  std::vector<TeamSpan> spans_;
  double least_s_ = 0;
};

}  // namespace pecia::execute
