// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of one rank's cache in layers that keep recent tokens alone (RecentLayers). A layer with a
/// window never reads a token again that the next row of its sequence does not see. Such tokens are
/// *gone*: their slots serve others.
///
///     window 200, blocks of 128, one rank, 1000 tokens cached
///     the next row stands at 1000 and sees 801 … 999, so tokens 0 … 767 are gone, and 768 … 999
///     lie in two blocks
///
/// Slots are taken and given back in whole blocks. So what is left of a sequence begins at a
/// multiple of `block`, where a backend's attention begins a block of keys, too, and bits are the
/// same as with all tokens kept. A block also keeps answers that decode side by side in runs of
/// keys that lie together.
///
/// Forks need no rule of their own. A sequence that others begin with does not grow any more, and
/// they begin at its end, so they see of it what its own next row would see.

#include <map>
#include <vector>

#include "lib/model/attention/kv_cache.hpp"
#include "lib/model/attention/slot_pool.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::attention {

class RecentSlots {
 public:
  static constexpr int64_t block = 128;  ///< tokens
  /// Tokens beyond the window that are kept, too. A save of the keys of a sequence (KvFiles) may be
  /// read without up to `margin` of its last tokens, and what is read then still has its window.
  static constexpr int64_t margin = 128;

  /// `layers.capacity` is a multiple of `block`. `instance` is this rank's instance, one of
  /// `instances`.
  RecentSlots(const RecentLayers& layers, int instances, int instance);

  /// Returns the slots for `count` more tokens of a sequence, after the `held` that this instance
  /// has cached of it, gone or not. Throws InvalidArgument if fewer slots are free.
  std::vector<parallel::SlotRange> extend(parallel::SequenceId sequence, int64_t held,
                                          int64_t count);
  /// Gives back the tokens of a sequence that no later row sees, where they fill whole blocks. The
  /// next row stands at the end of what the map has of the sequence.
  void forget(const parallel::KvMap& map, parallel::SequenceId sequence);
  void remove(parallel::SequenceId sequence);
  /// Gives back the blocks after the tokens that the map has of the sequence.
  void shorten(const parallel::KvMap& map, parallel::SequenceId sequence);
  /// Takes slots for the tokens of a sequence that later rows see, where it has none.
  void take_again(const parallel::KvMap& map, parallel::SequenceId sequence);

  /// Counts the tokens of a sequence that an instance has cached first and that are gone there. It
  /// is a multiple of `block`, and the same on every rank.
  int64_t evicted(parallel::SequenceId sequence, int instance) const;
  /// Returns the slots of this instance's other tokens, in their order.
  std::vector<parallel::SlotRange> slots(parallel::SequenceId sequence) const;

  /// Throws InvalidArgument unless each block is free, or a sequence of the map has it once.
  void verify(const parallel::KvMap& map) const;

  int64_t taken() const { return pool_.capacity() * block - pool_.free() * block; }
  int64_t most_taken() const { return most_taken_; }  ///< so far

  /// Bounds the slots that a sequence has between passes. `window`: of tokens, with the margin.
  static int64_t most_of_sequence(int64_t window) { return window - 1 + 2 * block; }
  /// Returns the capacity that is always enough for `sequences` sequences at a time and for passes
  /// that give an instance up to `rows` rows.
  static int64_t enough(int64_t window, int64_t sequences, int64_t rows) {
    const int64_t tokens = sequences * most_of_sequence(window) + rows;
    return (tokens + block - 1) / block * block;
  }

 private:
  struct Sequence {
    std::vector<int64_t> evicted;  ///< by instance
    std::vector<int64_t> blocks;   ///< of this instance's other tokens, in their order
  };
  Sequence& of(parallel::SequenceId sequence);
  int64_t unseen(const parallel::KvMap& map, parallel::SequenceId sequence, int instance) const;

  RecentLayers layers_;
  int instances_, instance_;
  SlotPool pool_;  ///< of blocks
  int64_t most_taken_ = 0;
  std::map<parallel::SequenceId, Sequence> sequences_;
};

}  // namespace pecia::attention
