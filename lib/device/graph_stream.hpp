// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A stream of a device that launches work it knows, as a graph, faster than one piece after the
/// other: when graphs of a step (Stream::begin_step) are made, launched and given up. What a graph
/// is, the device says.
///
/// What is enqueued otherwise than by `submit` cuts a step into segments. The i-th segment that is
/// long enough is the i-th graph: the one of the step before, where it is the same work.

#include <cstdint>
#include <functional>
#include <vector>

#include "lib/device/commands.hpp"
#include "lib/device/stream.hpp"

namespace pecia::device {

class GraphStream : public Stream {
 public:
  void begin_step() override;
  void end_step() override;
  void drop_step() override;

  bool in_step() const { return in_step_; }
  /// Does `work`, which enqueues what follows from `parts` alone: now, or, in a step, when its
  /// segment ends.
  template <typename... Parts>
  void submit(std::function<void()> work, const Parts&... parts) {
    if (in_step_)
      segment_.add(std::move(work), parts...);
    else
      work();
  }
  /// Enqueues what is held back: before anything is enqueued otherwise, the host waits, or memory
  /// is freed. Does nothing outside of a step.
  void end_segment();

  struct GraphCounts {
    int64_t launched = 0;
    int64_t made = 0;  ///< of those; the others were there from the step before
  };
  GraphCounts graph_counts() const { return counts_; }

 protected:
  /// Graph `index` becomes one that does `work`. It is one that was made before, or the next.
  virtual void make_graph(size_t index, const Commands& work) = 0;
  virtual void launch_graph(size_t index) = 0;
  /// Those from `count` on are not launched again.
  virtual void keep_graphs(size_t count) = 0;

 private:
  bool in_step_ = false;
  Commands segment_, ended_;
  size_t next_ = 0;               ///< graph of the step
  std::vector<Commands> graphs_;  ///< what each does
  GraphCounts counts_;
};

}  // namespace pecia::device
