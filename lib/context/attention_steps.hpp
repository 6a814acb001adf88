// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What attention over a ring is made of on one rank, whoever visits whom: caching, one attention
/// call, merging, keys that go round, results that go home. Each is a span of the recorder.

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/context/compute.hpp"
#include "lib/context/kv_cache.hpp"
#include "lib/parallel/kv_map.hpp"

namespace pecia::context {

/// A result for some rows that is still to be merged: out [rows, num_heads, head_dim], lse
/// [rows, num_heads].
struct Partial {
  TensorView out, lse;
};

/// One attention call: whose queries against which keys.
struct AttentionCall {
  std::vector<int64_t> positions;  ///< of its rows
  std::vector<kernels::AttentionItem> items;
  std::vector<kernels::KeyRun> runs;
  std::map<int64_t, double> flops;  ///< by window
};

/// Keys that travel together: the first `held` tokens of a part of a sequence of the cache, padded.
struct MessageBlock {
  parallel::SequenceId sequence;
  int part;
  int64_t held, padded_tokens;
};

/// Sequences whose keys the pass needs: its own and those that they begin with, ascending.
std::vector<parallel::SequenceId> sequences_seen(const std::vector<parallel::PassSequence>& pass,
                                                 const parallel::KvMap& map);

inline std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {static_cast<std::byte*>(tensor.data()),
          static_cast<size_t>(tensor.elements() * size_of(tensor.dtype()))};
}

class AttentionSteps {
 public:
  struct Buffers {
    explicit Buffers(const Compute& compute) : out(compute.buffer()), lse(compute.buffer()) {}
    device::Buffer out, lse;
  };

  /// As RingAttention.
  AttentionSteps(const Compute& compute, KvCache& cache, int64_t num_heads,
                 std::vector<int64_t> windows, kernels::RowInvariant row_invariant);

  /// The ring of the pass, which outlives it.
  void begin_pass(comm::Communicator& ring) { ring_ = &ring; }

  int64_t num_heads() const { return num_heads_; }
  int64_t head_dim() const { return cache_.shape().head_dim; }
  int64_t message_bytes() const { return message_tokens_ * cache_.shape().layer_bytes_per_token(); }
  kernels::StoredKeys cached(int64_t layer) const;
  TensorView queries(device::Buffer& buffer, int64_t rows) const {
    return buffer.tensor(DType::fp32, {rows, num_heads_, head_dim()});
  }
  Partial partial(Buffers& buffers, int64_t rows) const;
  TensorView lse(device::Buffer& buffer, int64_t rows) const {
    return buffer.tensor(DType::fp32, {rows, num_heads_});
  }

  /// Counts what the rows see of keys that stand at `keys`.
  void count_flops(AttentionCall& call, const std::vector<parallel::GlobalRange>& rows,
                   const std::vector<parallel::StridedRange>& keys) const;

  void store(int64_t layer, const TensorView& k, const TensorView& v,
             std::span<const int64_t> slots);
  void attend(int64_t layer, const AttentionCall& call, const TensorView& q,
              const kernels::StoredKeys& keys, const Partial& to);
  /// `rows` of `into` that the part is of; none: all.
  void merge(const Partial& part, const Partial& into, std::span<const int64_t> rows = {});

  /// The runs of tokens that are at `positions` one after the other in `slots` of memory in which a
  /// head's slots begin at element `offset`, those of the next one `head_stride` elements further.
  void add_runs(std::vector<kernels::KeyRun>& runs,
                const std::vector<parallel::StridedRange>& positions,
                const std::vector<parallel::SlotRange>& slots, int64_t offset,
                int64_t head_stride) const;
  /// The pass's message: K [num_kv_heads, padded, head_dim] of each block in turn, then V likewise;
  /// in fp8 then the scales of K [num_kv_heads, padded] of each block, and of V. What is padding is
  /// never written; no call ever points at it.
  void plan_message(std::vector<MessageBlock> blocks);
  /// Each rank's keys in turn, step 0 being the own in the cache, while those of the next step are
  /// on their way. Collective over the ring.
  void pass_keys(int64_t layer,
                 const std::function<void(int step, const kernels::StoredKeys& keys)>& visit);
  /// away[r] goes to rank r, home[r] comes from there; collective over the ring.
  void send_home(const std::vector<Partial>& away, const std::vector<Partial>& home);
  void wait(comm::Transfer& transfer, const char* name, int64_t bytes);

 private:
  void pack(int64_t layer, std::byte* message);
  kernels::StoredKeys in_message(const device::Buffer& message) const;

  comm::Communicator* ring_ = nullptr;
  Compute compute_;
  KvCache& cache_;
  int64_t num_heads_;
  std::vector<int64_t> windows_;         ///< by layer
  std::vector<int64_t> window_lengths_;  ///< each once
  kernels::RowInvariant row_invariant_;
  std::vector<MessageBlock> blocks_;
  int64_t message_tokens_ = 0;
  device::Buffer travelling_[2];
};

}  // namespace pecia::context
