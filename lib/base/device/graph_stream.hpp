// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A device stream that launches repeated work as a graph, which is faster than launching it piece
/// by piece. This class decides when the graphs of a step (Stream::begin_step) are made, launched
/// and given up. The device defines what a graph is.
///
/// Work that is not enqueued by `submit` cuts a step into segments, and so does the end of its first
/// few works. For the i-th segment that is long enough, the last few works are known that stood there
/// in earlier steps. Work that is new is launched piece by piece, since it may never come again, as
/// that of a prompt. The second time a graph is made of it, and from then on the graph is launched.
/// So a batch whose number of rows
/// goes up and down by a few finds its graphs again.
///
/// A segment may have collective works (hold_back). Then its ranks agree on each of these steps
/// (joint_ranks.hpp), whose messages take the host some microseconds a segment. On each rank such
/// works are this stream's own, between the work before and after them.
///
/// Where a graph cannot be made, all work is launched piece by piece from then on.
/// PECIA_CUDA_GRAPHS=0 in the environment does the same from the start.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/base/device/commands.hpp"
#include "lib/base/device/stream.hpp"

namespace pecia::device {

/// What a device did with graphs.
struct GraphCounts {
  int64_t launched = 0;
  int64_t made = 0;           ///< of those launched: how many were made for it
  int64_t pieces = 0;         ///< kernels, products and copies of all steps
  int64_t piecemeal = 0;      ///< segments as long as a graph that were launched piece by piece
  int64_t joint = 0;          ///< of those launched: how many have collectives of several ranks
  int64_t disagreed = 0;      ///< how often these ranks had different proposals for a segment
  std::string why_not;        ///< why no graphs are made any more; "" while they are made
  std::string why_not_joint;  ///< why none with collectives are made any more

  /// The share of long segments that took the host more than launching a graph.
  double slow_share() const {
    const auto all = static_cast<double>(launched + piecemeal);
    return all > 0 ? static_cast<double>(made + piecemeal) / all : 0;
  }
};

/// Tells whether a variable of the environment is 1, and not 0; `otherwise` where it is absent. Throws
/// InputError for another value; its message says that 0 means no `what`.
bool is_switched_on(const char* name, const char* what, bool otherwise = true);

class GraphStream : public Stream {
 public:
  GraphStream();
  void begin_step() override;
  void end_step() override;
  void drop_step() override;
  bool hold_back(JointRanks& ranks, const JointWork& work) override;
  void drop_joint_graphs() override;

  bool in_step() const { return in_step_; }
  /// Runs `work`, which enqueues only what follows from `parts`. It runs now, or, in a step, when
  /// its segment ends.
  template <typename... Parts>
  void submit(std::function<void()> work, const Parts&... parts) {
    if (!in_step_ || !counts_.why_not.empty()) return work();
    add(std::move(work), parts...);
  }
  /// Enqueues the work that is held back. Called before other work is enqueued, before the host
  /// waits, and before memory is freed. Does nothing outside a step.
  void end_segment();

  const GraphCounts& graph_counts() const { return counts_; }

 protected:
  /// Makes graph `slot` do `work`, which is not done meanwhile. The slot may have a graph, which is
  /// not launched again. Throws SystemError if the device cannot make it.
  virtual void make_graph(size_t slot, const Commands& work) = 0;
  virtual void launch_graph(size_t slot) = 0;
  /// The slot's graph, if it has one, is not launched again. A launch of before runs to its end.
  virtual void drop_graph(size_t slot) = 0;

 private:
  /// A segment's work in an earlier step.
  struct Known {
    Commands work;
    bool has_graph = false;
    int64_t joint_graph = 0;  ///< number of the graph, if it has collective works
    int64_t last_step = 0;    ///< in which it was launched
  };
  static constexpr size_t most_known = 8;
  /// The first segment is short, so that the device begins while the host still holds back what
  /// follows. Holding 260 works back takes 0.15 to 0.25 ms (8B shape, Intel Xeon beside an H100).
  static constexpr size_t works_of_first_segment = 24;
  /// Where collective works are held back before that, the first segment ends with the fourth one:
  /// on all ranks, though some of them have no rows and fewer works between.
  static constexpr int64_t joint_works_of_first_segment = 4;

  template <typename... Parts>
  void add(std::function<void()> work, const Parts&... parts) {
    segment_.add(std::move(work), parts...);
    end_first_segment();
  }
  void end_first_segment() {
    if (next_ == 0 && joint_ == nullptr && segment_.size() == works_of_first_segment) end_segment();
  }
  JointRanks::Act agree(JointRanks& ranks, const JointRanks::Proposal& mine);
  void enqueue_ended(JointRanks* ranks);
  void enqueue_new(size_t index, JointRanks* ranks);
  bool make(size_t slot, Known& known, JointRanks* ranks);
  void drop_joint(size_t slot, Known& known);

  bool in_step_ = false;
  Commands segment_, ended_;
  JointRanks* joint_ = nullptr;  ///< of the collective works in segment_
  int64_t joint_works_ = 0;      ///< held back in the step so far
  size_t next_ = 0;              ///< index of the next long segment in the step
  int64_t step_ = 0;
  std::vector<std::vector<Known>> known_;  ///< by the segment's index, at most most_known each
  GraphCounts counts_;
};

}  // namespace pecia::device
