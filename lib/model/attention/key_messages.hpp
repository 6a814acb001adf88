// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values that travel between the ranks of a ring: all of them round the ring, or each
/// straight to the ranks that see it.

#include <functional>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/kv_cache.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::attention {

/// Keys that travel together. They are the tokens in these slots of the cache, and then the pass's
/// rows [first_row, first_row + rows), which need not be cached. The block has `tokens` tokens. What
/// is beyond these two is padding.
struct MessageBlock {
  std::vector<parallel::SlotRange> cached;
  int64_t tokens;
  int64_t first_row = 0, rows = 0;
};

/// Keys that go straight to the ranks that see them (ranks/parallel/halo.hpp), by rank of the ring. The
/// rank itself has none.
struct HaloMessages {
  std::vector<std::vector<MessageBlock>> leaving;  ///< without padding
  std::vector<int64_t> coming;                     ///< tokens

  int64_t tokens_leaving() const;
  int64_t tokens_coming() const;
};

/// Tokens of a block that are copied into slots of this rank's cache as they pass.
struct KeptTokens {
  int64_t block_begin = 0, block_tokens = 0;  ///< the block, among the tokens of its message
  int64_t first = 0;                          ///< the first of the tokens in the block
  std::vector<parallel::SlotRange> slots;     ///< slots that they go to
};

class KeyMessages {
 public:
  /// `cache` must outlive this object.
  KeyMessages(const Compute& compute, KvCache& cache);

  /// Forgets the plan. `ring` must outlive the pass.
  void begin_pass(comm::Communicator& ring);
  /// Plans the pass's messages of a kind of layers (KvCache::kinds). A message has K [num_kv_heads,
  /// tokens] of each block in turn, and then V in the same way. In fp8 the scales of K [num_kv_heads,
  /// tokens] of each block follow, and then the scales of V. Where values are the beginnings of keys,
  /// there is K alone. Padding is never written, and no call ever points at it.
  ///   blocks   the blocks of this rank's own message
  ///   tokens   the tokens of the message that is here at each step, padding included
  ///   kept     what is copied from that message into this rank's cache, by step, if anything is
  void plan(int kind, std::vector<MessageBlock> blocks, std::vector<int64_t> tokens,
            std::vector<std::vector<KeptTokens>> kept = {});
  /// Visits each rank's keys in turn, while the keys of the next step are on their way. Step 0
  /// visits the rank's own keys. These are in the cache, or, if any are kept elsewhere, in the
  /// rank's message. `k` and `v` are the pass's rows (LayerRows). The call is collective over the ring.
  void pass_round(int64_t layer, const TensorView& k, const TensorView& v,
                  const std::function<void(int step, const kernels::StoredKeys& keys)>& visit);
  /// Sends keys straight to the ranks that see them. Visits the rank's own keys, in the cache, while
  /// they travel, and then what has come, if anything has. The messages that came lie one after the
  /// other by rank: K [num_kv_heads, tokens] of each block of each message in turn, and then V and
  /// the scales in the same way. The call is collective over the ring.
  void exchange(int64_t layer, const HaloMessages& messages,
                const std::function<void(const kernels::StoredKeys& keys)>& visit_own,
                const std::function<void(const kernels::StoredKeys& keys)>& visit_halo);

 private:
  /// Keys and values of a message; equal where values are the beginnings of keys.
  struct Parts {
    std::byte *k, *v;
    float *k_scales = nullptr, *v_scales = nullptr;  ///< in fp8
  };
  static Parts parts(const KvShape& shape, const device::Buffer& message, int64_t tokens);
  /// The messages of a kind of layers.
  struct Planned {
    std::vector<MessageBlock> blocks;
    std::vector<int64_t> tokens;                ///< by step
    std::vector<std::vector<KeptTokens>> kept;  ///< by step; empty: nothing is kept
  };
  const Planned& planned(int64_t layer) const { return planned_[cache_.kind(layer)]; }
  int64_t message_bytes(int64_t layer, int step) const {
    return planned(layer).tokens.at(step) * cache_.shape(layer).layer_bytes_per_token();
  }
  void pack(int64_t layer, const TensorView& k, const TensorView& v);
  std::byte* pack_cached(const TensorView& cached, const std::vector<MessageBlock>& blocks,
                         std::byte* message);
  void pack_rows(const KvShape& shape, const std::vector<MessageBlock>& blocks, const TensorView& x,
                 std::byte* vectors, float* scales);
  void keep(int64_t layer, int step);

  Compute compute_;
  KvCache& cache_;
  comm::Communicator* ring_ = nullptr;
  std::vector<Planned> planned_;      ///< by kind of layers
  std::vector<int64_t> block_slots_;  ///< places of a block's rows
  device::Buffer travelling_[2];
};

}  // namespace pecia::attention
