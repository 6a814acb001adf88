// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks whose collective works stand in graphs, and how they agree on each graph.
///
/// NCCL asks that an operation is captured on all its ranks or on none, and that a graph with it is
/// launched by all of them, as captured together (user guide, "Using NCCL with CUDA Graphs"). But
/// each rank finds its graphs by its own addresses, its memory grows when it must, and a graph may
/// fail to be made on one rank alone. So all ranks propose what to do, and all do the least:
///
///     never < piecemeal < make < launch
///
/// Collective works are numbered, and all ranks have the same ones in the same order. Each rank
/// holds them back until something cuts its segment, which need not happen at the same work
/// everywhere: one rank may free memory where the others do not. Then it proposes, with the number
/// of its last work and a digest of all its works. If these numbers differ, works up to the highest
/// one are settled: every rank enqueues them piece by piece, without asking again. So the n-th
/// proposal of a rank always meets the n-th of the others, and no rank waits for work that another
/// one still holds back.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace pecia::device {

class JointRanks {
 public:
  enum class Act : int64_t { never, piecemeal, make, launch };

  virtual ~JointRanks() = default;

  /// Why collective works are not held back any more; "" while they are. The same on every rank.
  const std::string& why_not() const { return why_not_; }
  /// How often the ranks had different proposals.
  int64_t disagreements() const { return disagreements_; }

  /// The next collective work, in words that are the same on every rank: "all_reduce of 4096".
  void add_work(std::string words);
  /// Whether the last work has to be agreed on before it is enqueued.
  bool is_open() const { return works_ > settled_; }

  /// What a rank would do with the works since the last proposal.
  struct Proposal {
    Act act = Act::piecemeal;
    int64_t graph = 0;         ///< with Act::launch, the number of the graph
    std::string why_not = {};  ///< with Act::never
  };
  /// Collective: returns what all ranks do. Act::never is also for all later works. Throws
  /// InvalidArgument on every rank if their works differ, naming the first two ranks that do, and
  /// what all_gather throws when a rank does not come. Afterwards add_work throws the same again,
  /// since memory that is freed has to hide errors.
  Act agree(const Proposal& mine);
  /// Collective, after Act::make: `error` is why this rank has no graph, or "". Returns the new
  /// graph's number, or 0 if a rank failed. Then why_not() is the error of the lowest such rank.
  int64_t agree_on_made(const std::string& error);

  /// Calls `launch`, which launches a graph of collective works, and may wait for other ranks there.
  virtual void watch_launch(const std::function<void()>& launch) = 0;
  /// All works that were added have been enqueued.
  virtual void enqueued() = 0;

 private:
  /// Collective: returns what every rank gives, by rank. Sizes may differ. Throws SystemError when a
  /// rank does not come in time.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  std::vector<std::vector<std::byte>> gathered(std::span<const std::byte> mine);
  Act least_of(const std::vector<std::vector<std::byte>>& messages);

  int64_t works_ = 0, settled_ = 0;  ///< numbers of the last work and of the last settled one
  uint64_t digest_ = 0;              ///< of the words of all works
  std::string last_work_;
  int64_t graphs_ = 0;  ///< that the ranks have made together
  int64_t disagreements_ = 0;
  std::string why_not_, broken_;
};

/// A collective work that may be held back.
struct JointWork {
  std::string words;  ///< the same on every rank: "all_reduce of 4096"
  /// This rank's memory. The work follows from it and from the words.
  std::vector<std::span<const std::byte>> memory;
  std::function<void()> enqueue;
};

}  // namespace pecia::device
