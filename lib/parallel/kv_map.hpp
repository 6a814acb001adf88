// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Who holds the keys and values of which tokens. Every rank of a ring keeps the same map: it
/// follows from the passes alone, so positions never travel.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lib/parallel/pass.hpp"

namespace pecia::parallel {

/// Positions begin, begin + stride, … (count of them): a chunk of a prompt has stride 1, generated
/// tokens dealt round-robin to N ranks mostly stride N.
struct StridedRange {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t stride = 1;

  int64_t position(int64_t index) const { return begin + index * stride; }
  bool operator==(const StridedRange&) const = default;
};

/// Tokens [begin, begin + count) of a range.
struct IndexRun {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const IndexRun&) const = default;
};

/// Those of the range whose positions lie in [begin, end).
IndexRun indices_between(const StridedRange& range, int64_t begin, int64_t end);

/// Tokens in slots next to each other, whose positions go up in equal steps.
struct Stretch {
  int64_t slot = 0;  ///< of the first
  StridedRange positions;
  bool operator==(const Stretch&) const = default;
};

/// Tokens at `positions`, one after the other in `slots`, cut where the one or the other jumps.
/// There are at least as many slots.
///
///     positions 0 1 2 3 | 8 10 12 14, slots 5 6 | 20 … 25
///                                    0 1 from slot 5     2 3 from 20     8 10 12 14 from 22
std::vector<Stretch> stretches(const std::vector<StridedRange>& positions,
                               const std::vector<SlotRange>& slots);

/// How many pairs of a query at a position of `rows` and a key at one of `keys` there are in which
/// the query sees the key: it is not behind it, and within a window that is not 0.
int64_t count_seen(GlobalRange rows, const std::vector<StridedRange>& keys, int64_t window);

/// Sequences, the positions each rank of the group holds of them in the order they were cached, and
/// how many tokens each may still cache on a rank.
class KvMap {
 public:
  explicit KvMap(int num_ranks) : num_ranks_(num_ranks) {}

  int num_ranks() const { return num_ranks_; }

  /// A new sequence with room for `reserved` tokens on every rank. With `parent`, its first tokens
  /// are all those of the parent, which stays as it is while it has children.
  void add(SequenceId sequence, int64_t reserved, std::optional<SequenceId> parent = {});
  void remove(SequenceId sequence);
  bool contains(SequenceId sequence) const { return sequences_.contains(sequence); }

  /// The new tokens of a pass are cached where their rows are. Their first position must be the
  /// sequence's length, and no rank may go beyond what is reserved.
  void append(const PassSequence& rows);

  std::optional<SequenceId> parent(SequenceId sequence) const { return at(sequence).parent; }
  /// Tokens cached, the parent's included.
  int64_t length(SequenceId sequence) const { return at(sequence).length; }
  int64_t reserved(SequenceId sequence) const { return at(sequence).reserved; }
  /// Tokens of its own, without the parent's, that `rank` holds; and where they stand.
  int64_t held(SequenceId sequence, int rank) const { return at(sequence).ranks[rank].tokens; }
  const std::vector<StridedRange>& ranges(SequenceId sequence, int rank) const {
    return at(sequence).ranks[rank].ranges;
  }
  /// The parent, if any, then the sequence itself: whose tokens a query of `sequence` sees.
  std::vector<SequenceId> lineage(SequenceId sequence) const;

  /// Tokens reserved on each rank, by all sequences together.
  int64_t total_reserved() const { return total_reserved_; }

 private:
  struct Held {
    int64_t tokens = 0;
    std::vector<StridedRange> ranges;
  };
  struct Sequence {
    std::optional<SequenceId> parent;
    int64_t length = 0;
    int64_t reserved = 0;
    int64_t children = 0;
    std::vector<Held> ranks;
  };
  const Sequence& at(SequenceId sequence) const;
  Sequence& at(SequenceId sequence) {
    return const_cast<Sequence&>(static_cast<const KvMap*>(this)->at(sequence));
  }

  int num_ranks_;
  int64_t total_reserved_ = 0;
  std::map<SequenceId, Sequence> sequences_;
};

}  // namespace pecia::parallel
