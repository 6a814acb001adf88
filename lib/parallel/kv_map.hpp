// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Who holds the keys and values of which tokens. Every rank of a replica keeps the same map: it
/// follows from the plans alone, so positions never travel.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lib/parallel/team.hpp"

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

/// Sequences, the positions that each instance holds of them in the order they were cached, and how
/// many tokens each may still cache there. Where instances play virtual ranks (virtual_ranks.hpp),
/// each of these holds its own part.
class KvMap {
 public:
  /// `virtual_ranks`: on each instance; 1 where none are played.
  explicit KvMap(int instances, int virtual_ranks = 1)
      : instances_(instances), virtual_ranks_(virtual_ranks), total_reserved_(instances) {}

  int instances() const { return instances_; }
  int virtual_ranks() const { return virtual_ranks_; }

  /// A new sequence with room for reserved[i] tokens on instance i, in equal parts for its virtual
  /// ranks. With `parent`, its first tokens are all those of the parent, which stays as it is while
  /// it has children.
  void add(SequenceId sequence, const std::vector<int64_t>& reserved,
           std::optional<SequenceId> parent = {});
  void remove(SequenceId sequence);
  bool contains(SequenceId sequence) const { return sequences_.contains(sequence); }

  /// The new tokens of a pass are cached where their rows are. Their first position must be the
  /// sequence's length, the team must have all instances that hold keys which the rows see, and no
  /// instance may go beyond what is reserved there; else InvalidArgument.
  void append(const PassSequence& rows, const Team& team);

  std::optional<SequenceId> parent(SequenceId sequence) const { return at(sequence).parent; }
  /// Tokens cached, the parent's included.
  int64_t length(SequenceId sequence) const { return at(sequence).length; }
  int64_t reserved(SequenceId sequence, int instance) const {
    return at(sequence).reserved.at(instance);
  }
  /// Tokens of its own, without the parent's, that an instance holds, or one of its virtual ranks;
  /// and where they stand.
  int64_t held(SequenceId sequence, int instance, int virtual_rank = 0) const {
    return part(sequence, instance, virtual_rank).tokens;
  }
  const std::vector<StridedRange>& ranges(SequenceId sequence, int instance,
                                          int virtual_rank = 0) const {
    return part(sequence, instance, virtual_rank).ranges;
  }
  /// The parent, if any, then the sequence itself: whose tokens a query of `sequence` sees.
  std::vector<SequenceId> lineage(SequenceId sequence) const;
  /// Instances that hold keys which a query of `sequence` sees, ascending.
  std::vector<int> holders(SequenceId sequence) const;

  /// Tokens reserved on an instance, by all sequences together.
  int64_t total_reserved(int instance) const { return total_reserved_.at(instance); }

 private:
  struct Held {
    int64_t tokens = 0;
    std::vector<StridedRange> ranges;
  };
  struct Sequence {
    std::optional<SequenceId> parent;
    int64_t length = 0;
    int64_t children = 0;
    std::vector<int64_t> reserved;  ///< by instance
    std::vector<Held> parts;        ///< by instance, then by virtual rank
  };
  const Sequence& at(SequenceId sequence) const;
  Sequence& at(SequenceId sequence) {
    return const_cast<Sequence&>(static_cast<const KvMap*>(this)->at(sequence));
  }
  const Held& part(SequenceId sequence, int instance, int virtual_rank) const {
    return at(sequence).parts.at(instance * virtual_ranks_ + virtual_rank);
  }

  int instances_, virtual_ranks_;
  std::vector<int64_t> total_reserved_;  ///< by instance
  std::map<SequenceId, Sequence> sequences_;
};

}  // namespace pecia::parallel
