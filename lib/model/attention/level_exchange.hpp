// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the steps of a layer by levels send: keys and queries to the ranks that attend them, and results
/// to the ranks whose rows they are. In each step a rank gets at most one message of each kind. Messages
/// are packed and unpacked by one op for each step and kind.

#include <memory>
#include <vector>

#include "lib/model/attention/level_arenas.hpp"

namespace pecia::attention {

class LevelExchange {
 public:
  /// All references must outlive this object.
  LevelExchange(const Compute& compute, const KvCache& cache, AttentionSteps& steps);

  /// Begins a layer. `layout` and `lists` stay until it is done.
  void begin(const LevelLayout& layout, int64_t layer, const TokenLists& lists);
  // For each step in turn; collective over the ring:
  /// Starts to send the step's keys, and copies own ones into the arena. They are in the cache.
  void start_keys(size_t step);
  // And then for each step in turn:
  /// Starts to send the step's queries, and copies own ones into the arena. q is [rows, num_heads,
  /// head_dim] fp32.
  void start_queries(size_t step, const TensorView& q);
  // And then for each step in turn:
  /// Waits for the step's tokens, attends them, and starts to send the results.
  void attend(size_t step);
  // And then for each step in turn:
  /// Waits for results from other ranks and merges them, after own ones, into those of all heads.
  void merge(size_t step, const Partial& into);

  /// The arenas, which nobody needs between layers and once all steps are merged.
  LevelArenas& arenas() { return arenas_; }
  KeyArena& keys() { return keys_; }

  /// Adds queries of KV heads' groups to what is picked: rows of q as the lists say.
  void pick_queries(RowPicks& picks, const TensorView& q,
                    const std::vector<LevelLayout::Pick>& from, const TokenLists& lists,
                    const TensorView& to) const;
  /// Adds own keys of the layer.
  void pick_keys(RowPicks& picks, int64_t layer, TokenLists::Kind kind,
                 const std::vector<LevelLayout::Pick>& from, const TokenLists& lists,
                 const KeyRows& to) const;

 private:
  /// Messages of a step that are under way.
  struct UnderWay {
    std::unique_ptr<comm::Transfer> transfer;
    std::vector<std::byte*> coming;  ///< where each message from another rank begins
    int64_t sent = 0;                ///< bytes
  };
  /// Results for some rows in a message: outputs in the wire's type, and log-sums after them.
  Partial results_at(std::byte* begin, int64_t rows) const;
  int64_t results_room(int64_t rows) const;
  void reserve_messages();

  Compute compute_;
  const KvCache& cache_;
  AttentionSteps& steps_;
  MessageShape shape_;
  LevelArenas arenas_;
  KeyArena keys_;

  // The layer.
  const LevelLayout* layout_ = nullptr;
  const TokenLists* lists_ = nullptr;
  int64_t layer_ = 0;
  std::vector<UnderWay> tokens_, queries_, results_;  ///< by step; tokens are keys
  device::Buffer leaving_, coming_, results_leaving_, results_coming_;
  int64_t leaving_end_ = 0, coming_end_ = 0, results_leaving_end_ = 0, results_coming_end_ = 0;
};

}  // namespace pecia::attention
