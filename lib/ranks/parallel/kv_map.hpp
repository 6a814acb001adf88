// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells who holds the keys and values of which tokens. Every rank of a replica keeps the same map.
/// The map follows from the plans alone, so positions never travel.

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kernels/api/window.hpp"
#include "lib/ranks/parallel/team.hpp"

namespace pecia::parallel {

/// Returns the tokens of the range whose positions lie in [begin, end).
IndexRun indices_between(const StridedRange& range, int64_t begin, int64_t end);

/// Tokens in slots next to each other, whose positions go up in equal steps.
struct Stretch {
  int64_t slot = 0;  ///< slot of the first token
  StridedRange positions;
  bool operator==(const Stretch&) const = default;
};

/// Cuts tokens into stretches. The tokens stand at `positions` and lie one after the other in
/// `slots`. They are cut where positions or slots jump. There must be at least as many slots as
/// tokens.
///
///     positions 0 1 2 3 | 8 10 12 14, slots 5 6 | 20 … 25
///                                    0 1 from slot 5     2 3 from 20     8 10 12 14 from 22
std::vector<Stretch> stretches(const std::vector<StridedRange>& positions,
                               const std::vector<SlotRange>& slots);

/// Counts the pairs of query and key in which the query sees the key. Queries stand at the
/// positions of `rows`, and keys at the positions of `keys`. A query sees a key that does not come
/// after it and the window reaches it.
int64_t count_seen(GlobalRange rows, const std::vector<StridedRange>& keys, kernels::Window window);

/// What the map has of a sequence: its parent, if there is one, and by instance what is reserved and
/// by virtual rank of an instance what is held.
struct SequenceState {
  static constexpr SequenceId no_parent = -1;
  static constexpr int32_t nobody = -1;

  SequenceId parent = no_parent;
  int64_t length = 0;
  std::vector<int64_t> reserved;
  /// Of each instance, and of each virtual rank in it; empty: the sequence begins now.
  std::vector<std::vector<StridedRange>> held;
  int32_t state_holder = nobody;  ///< KvMap::state_holder

  template <typename A>
  void visit(A& archive) {
    archive(parent), archive(length), archive(reserved), archive(state_holder);
    auto instances = static_cast<int64_t>(held.size());
    archive(instances);
    held.resize(static_cast<size_t>(instances));
    for (std::vector<StridedRange>& ranges : held) archive(ranges);
  }
};

/// A sequence's parent, if there is one, and then the sequence itself.
class Lineage {
 public:
  explicit Lineage(SequenceId sequence, std::optional<SequenceId> parent = {})
      : members_{parent.value_or(sequence), sequence}, count_(parent ? 2 : 1) {}

  const SequenceId* begin() const { return members_.data(); }
  const SequenceId* end() const { return members_.data() + count_; }
  SequenceId front() const { return members_.front(); }

 private:
  std::array<SequenceId, 2> members_;
  size_t count_;
};

/// The sequences of a replica. For each sequence the map has the positions that each instance
/// holds, in the order in which they were cached, and the number of tokens that may be cached
/// there. If instances play virtual ranks (virtual_ranks.hpp), each virtual rank holds its own
/// part.
class KvMap {
 public:
  /// `virtual_ranks` is their number on each instance. It is 1 if none are played.
  explicit KvMap(int instances, int virtual_ranks = 1)
      : instances_(instances),
        virtual_ranks_(virtual_ranks),
        total_reserved_(instances),
        total_parked_(instances) {}

  int instances() const { return instances_; }
  int virtual_ranks() const { return virtual_ranks_; }

  /// Adds a sequence with room for reserved[i] tokens on instance i, in equal parts for its virtual
  /// ranks. With `parent`, it begins with all tokens of the parent. The parent cannot change while
  /// it has children.
  void add(SequenceId sequence, const std::vector<int64_t>& reserved,
           std::optional<SequenceId> parent = {});
  void remove(SequenceId sequence);
  int64_t size() const { return static_cast<int64_t>(sequences_.size()); }
  /// All sequences, children before their parents, which have smaller numbers.
  std::vector<SequenceId> sequences() const;
  bool contains(SequenceId sequence) const { return sequences_.contains(sequence); }

  /// Adds the new tokens of a pass. They are cached where their rows are, or where the placement
  /// says. Throws InvalidArgument unless their first position is the sequence's length, the team has
  /// all instances that hold keys which the rows see, and no instance goes beyond what is reserved
  /// there. With virtual ranks there are no placements.
  void append(const PassSequence& rows, const Team& team, const Placement* placement = nullptr);
  /// Returns what travels of the sequence in a pass that places its tokens, by place in the ring.
  /// Call it before `append`.
  std::vector<TravellingTokens> travelling(const PassSequence& rows, const Team& team) const;

  /// Drops the tokens of a sequence from position `length` on, which are its own. Its slots stay. Where
  /// these are the rows of its last pass, its state is where it was before. Else it is where the last
  /// token is that stays, as tokens then stay where they were computed.
  void shorten(SequenceId sequence, int64_t length);

  /// Changes what a sequence may hold on an instance, in equal parts for its virtual ranks. Throws
  /// InvalidArgument if it holds more.
  void set_reserved(SequenceId sequence, int instance, int64_t tokens);
  /// Notes that the keys of a sequence lie elsewhere now. It reserves nothing, nobody sees its
  /// tokens, and it does not grow until it comes back: it has room for reserved[i] tokens on
  /// instance i then, and each of its tokens is where it was.
  void park(SequenceId sequence);
  void bring_back(SequenceId sequence, const std::vector<int64_t>& reserved);
  bool is_parked(SequenceId sequence) const { return at(sequence).parked; }

  /// Returns all that the map has of a sequence but its children.
  SequenceState state(SequenceId sequence) const;
  /// Adds a sequence in this state. If the map has it already, its state becomes this one; with
  /// virtual ranks it has then reserved as much as before.
  void set_state(SequenceId sequence, const SequenceState& state);

  std::optional<SequenceId> parent(SequenceId sequence) const { return at(sequence).parent; }
  bool has_children(SequenceId sequence) const { return at(sequence).children > 0; }
  /// Counts the cached tokens, including the parent's.
  int64_t length(SequenceId sequence) const { return at(sequence).length; }
  int64_t reserved(SequenceId sequence, int instance) const {
    return at(sequence).reserved.at(instance);
  }
  /// Counts the sequence's own tokens that an instance, or one of its virtual ranks, holds. The
  /// parent's are not counted. `ranges` gives their positions.
  int64_t held(SequenceId sequence, int instance, int virtual_rank = 0) const {
    return part(sequence, instance, virtual_rank).tokens;
  }
  /// Counts the sequence's own tokens that all virtual ranks of an instance hold.
  int64_t held_by(SequenceId sequence, int instance) const;
  const std::vector<StridedRange>& ranges(SequenceId sequence, int instance,
                                          int virtual_rank = 0) const {
    return part(sequence, instance, virtual_rank).ranges;
  }
  /// Returns the sequences whose tokens a query of `sequence` sees.
  Lineage lineage(SequenceId sequence) const;
  /// Returns the instances that hold keys which a query of `sequence` sees, in ascending order.
  std::vector<int> holders(SequenceId sequence) const;

  /// Returns the instance that has the states of recurrent layers after the sequence's last token:
  /// the one that has computed it, or, where that keeps no keys of the sequence, the one that keeps
  /// most. So a team with all holders of keys has the state, too. A sequence without tokens of its
  /// own begins with its parent's state; without a parent it is SequenceState::nobody.
  int32_t state_holder(SequenceId sequence) const { return at(sequence).state_holder; }

  /// Throws InvalidArgument unless each token of each sequence is held once, its parent's tokens by
  /// the parent, no instance holds more than is reserved there, the holder of a state holds keys, and
  /// the totals are those of all sequences.
  void verify() const;

  /// Counts the tokens that all sequences together reserve on an instance.
  int64_t total_reserved(int instance) const { return total_reserved_.at(instance); }
  /// Counts the tokens of parked sequences that an instance holds.
  int64_t total_parked(int instance) const { return total_parked_.at(instance); }
  /// Counts the parked sequences.
  int64_t num_parked() const { return num_parked_; }

 private:
  struct Held {
    int64_t tokens = 0;
    std::vector<StridedRange> ranges;
  };
  struct Sequence {
    std::optional<SequenceId> parent;
    int64_t length = 0;
    int64_t children = 0;
    int32_t state_holder = SequenceState::nobody;
    int64_t length_before = 0;                      ///< its last rows
    int32_t holder_before = SequenceState::nobody;  ///< of its state
    bool parked = false;
    std::vector<int64_t> reserved;  ///< by instance
    std::vector<Held> parts;        ///< by instance, then by virtual rank
  };
  void count_parked(SequenceId sequence, int64_t sign);
  void place(Sequence& sequence, const PassSequence& rows, const Team& team,
             const Placement& placement);
  int32_t most_held(SequenceId sequence) const;
  int32_t holder_of(SequenceId sequence, int64_t position) const;
  const Sequence& at(SequenceId sequence) const;
  Sequence& at(SequenceId sequence) {
    return const_cast<Sequence&>(static_cast<const KvMap*>(this)->at(sequence));
  }
  const Held& part(SequenceId sequence, int instance, int virtual_rank) const {
    return at(sequence).parts.at(instance * virtual_ranks_ + virtual_rank);
  }

  int instances_, virtual_ranks_;
  std::vector<int64_t> total_reserved_;  ///< by instance
  std::vector<int64_t> total_parked_;    ///< likewise
  int64_t num_parked_ = 0;
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace pecia::parallel
