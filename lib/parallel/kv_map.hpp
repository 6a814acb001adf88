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

/// Tokens [begin, begin + count) of a rank's list of a sequence, in the order they were cached.
struct IndexRun {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const IndexRun&) const = default;
};

/// Cuts a list of positions where a long stretch of prompt begins or ends, so that an attention
/// kernel that looks at blocks of one run sees chunks it can take or skip whole. Short ranges stay
/// together.
std::vector<IndexRun> runs_of(const std::vector<StridedRange>& ranges);

/// The positions in order; `out` has room for all of them.
void fill_positions(const std::vector<StridedRange>& ranges, int64_t* out);

/// How many of the positions lie in [begin, end).
int64_t count_between(const std::vector<StridedRange>& ranges, int64_t begin, int64_t end);

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
