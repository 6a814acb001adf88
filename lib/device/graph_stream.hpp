// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A device stream that launches repeated work as a graph, which is faster than launching it piece
/// by piece. This class decides when the graphs of a step (Stream::begin_step) are made, launched
/// and given up. The device defines what a graph is.
///
/// Work that is not enqueued by `submit` cuts a step into segments. The i-th segment that is long
/// enough is launched as the i-th graph. The graph of the step before is used again if its work is
/// the same. Where a graph cannot be made, its work is launched piece by piece, and so is all later
/// work. PECIA_CUDA_GRAPHS=0 in the environment does the same from the start.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/device/commands.hpp"
#include "lib/device/stream.hpp"

namespace pecia::device {

/// What a device did with graphs.
struct GraphCounts {
  int64_t launched = 0;
  int64_t made = 0;     ///< graphs made anew; the others were kept from the step before
  std::string why_not;  ///< why no graphs are made any more; "" while they are made
};

class GraphStream : public Stream {
 public:
  GraphStream();
  void begin_step() override;
  void end_step() override;
  void drop_step() override;

  bool in_step() const { return in_step_; }
  /// Runs `work`, which enqueues only what follows from `parts`. It runs now, or, in a step, when
  /// its segment ends.
  template <typename... Parts>
  void submit(std::function<void()> work, const Parts&... parts) {
    if (in_step_ && counts_.why_not.empty())
      segment_.add(std::move(work), parts...);
    else
      work();
  }
  /// Enqueues the work that is held back. Called before other work is enqueued, before the host
  /// waits, and before memory is freed. Does nothing outside a step.
  void end_segment();

  const GraphCounts& graph_counts() const { return counts_; }

 protected:
  /// Makes graph `index` do `work`, which is not done meanwhile. The index is one of the graphs made
  /// before, or the next one. Throws SystemError if the device cannot make it.
  virtual void make_graph(size_t index, const Commands& work) = 0;
  virtual void launch_graph(size_t index) = 0;
  /// Graphs from index `count` on are not launched again.
  virtual void keep_graphs(size_t count) = 0;

 private:
  void give_up_graphs(const std::string& why);

  bool in_step_ = false;
  Commands segment_, ended_;
  size_t next_ = 0;               ///< index of the next graph in the step
  std::vector<Commands> graphs_;  ///< the work of each graph
  GraphCounts counts_;
};

}  // namespace pecia::device
