// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values of the first tokens of sequences, which every rank gets. A rank sends those that
/// it has in one message, the same to all others.

#include <memory>
#include <vector>

#include "lib/model/attention/level_exchange.hpp"
#include "lib/model/attention/level_pass_plan.hpp"

namespace pecia::attention {

class LevelSinks {
 public:
  /// All references must outlive this object.
  LevelSinks(const Compute& compute, const KvCache& cache, AttentionSteps& steps);

  /// Starts to send the sinks that are here. `exchange` picks them as `lists` say. Collective over
  /// the ring.
  void start(const LevelPass& pass, const OwnAttention& sinks, int64_t layer,
             const LevelExchange& exchange, const TokenLists& lists);
  /// Waits for all sinks, at this rank of the ring. They are by sequence, KV head and token, as
  /// plan_sinks has them.
  const KeyArena& wait(int rank);

 private:
  /// Of a sequence.
  struct Place {
    int rank = 0;                       ///< that gives its sinks
    int64_t keys = 0;                   ///< entries
    int64_t first = 0, in_message = 0;  ///< the first entry of the arena, and of the rank's message
  };
  void find_places(const LevelPass& pass);
  std::vector<LevelLayout::Pick> in_message(std::vector<LevelLayout::Pick> picks) const;

  Compute compute_;
  AttentionSteps& steps_;
  MessageShape shape_;
  KeyArena keys_;
  device::Buffer leaving_, coming_;
  std::unique_ptr<comm::Transfer> transfer_;
  std::vector<Place> places_;           ///< by sequence
  std::vector<int64_t> of_ranks_;       ///< keys that each rank gives
  std::vector<TokenMessage> messages_;  ///< that come, by rank
  int64_t sent_ = 0;                    ///< bytes
};

}  // namespace pecia::attention
