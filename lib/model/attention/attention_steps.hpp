// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The steps of attention over a ring on one rank: caching, one attention call, merging, and sending
/// results home. Keys travel by key_messages.hpp. Each step is a span of the recorder.

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/key_messages.hpp"
#include "lib/model/attention/kv_cache.hpp"
#include "lib/model/attention/latent_tiles.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/kv_map.hpp"
#include "lib/ranks/parallel/latent_rule.hpp"

namespace pecia::attention {

/// A result for some rows that must still be merged. `out` is [rows, num_heads, value_dim], and
/// `lse` is [rows, num_heads].
struct Partial {
  TensorView out, lse;
};

/// One attention call. It says which queries attend which keys.
struct AttentionCall {
  std::vector<int64_t> positions;  ///< positions of its rows
  std::vector<kernels::AttentionItem> items;
  std::vector<kernels::KeyRun> runs;
  std::map<kernels::Window, double> flops;  ///< by window
  int merged = 1;                           ///< AttentionArgs::merged
};

class AttentionSteps {
 public:
  struct Buffers {
    explicit Buffers(const Compute& compute) : out(compute.buffer()), lse(compute.buffer()) {}
    device::Buffer out, lse;
  };

  /// All references must outlive this object. `num_heads`: of this rank. `windows` has each layer's
  /// sliding window, 0 for none. `scale` multiplies scores; absent: 1/sqrt(head_dim). Queries and
  /// results travel in `wire`, fp32 or bf16.
  AttentionSteps(const Compute& compute, KvCache& cache, int64_t num_heads,
                 std::vector<kernels::Window> windows, kernels::RowInvariant row_invariant,
                 std::optional<float> scale = {}, DType wire = DType::fp32);

  /// Sets the ring of the pass, which has no messages yet. It must outlive the pass. With `expanded`
  /// the pass attends keys and values of these heads, which are made of the cache's latents. Then
  /// queries have query_dim and results value_dim of `expanded`.
  void begin_pass(comm::Communicator& ring,
                  const std::optional<parallel::LatentHead>& expanded = {});
  /// Who makes the keys of the layers that follow, if the pass is expanded.
  struct Expansion {
    LatentExpander* expander = nullptr;
    int64_t first_head = 0;  ///< of the model, the first one of this rank
    int64_t most_bytes = 0;  ///< of keys and values that are made at a time, but at least a token's
  };
  void expand_with(const Expansion& expansion) { expansion_ = expansion; }
  comm::Communicator& ring() const { return *ring_; }
  KeyMessages& messages() { return messages_; }  ///< of keys that travel

  /// Layers come in their order, each begun before its calls: those without an argument for the
  /// layer are about this one. Where all layers are alike, none has to be begun.
  void begin_layer(int64_t layer) { layer_kind_ = cache_.kind(layer); }

  const KvCache& cache() const { return cache_; }
  /// The kinds of layers with these windows, each once: places in KvCache::kinds.
  std::vector<int> kinds(std::span<const kernels::Window> windows) const;
  std::vector<int> kinds() const { return kinds(window_kinds_); }
  /// The one kind of the layers with this window.
  int kind_of_window(kernels::Window window) const;
  const LayerKind& kind(int index) const { return cache_.kinds()[index]; }
  const KvShape& shape() const { return kind(layer_kind_).shape; }  ///< of the layer
  kernels::Window window(int64_t layer) const { return windows_[layer]; }
  const std::vector<kernels::Window>& windows() const {
    return window_kinds_;
  }  ///< each once, ascending
  int64_t num_heads() const { return num_heads_; }
  int64_t head_dim() const { return shape().head_dim; }  ///< of what is cached
  /// Of the pass's queries and results, in layers with keys of this shape.
  int64_t query_dim(const KvShape& shape) const {
    return expanded_ ? expanded_->query_dim() : shape.head_dim;
  }
  int64_t value_dim(const KvShape& shape) const {
    return expanded_ ? expanded_->value_dim : shape.value_dim();
  }
  int64_t query_dim() const { return query_dim(shape()); }
  int64_t value_dim() const { return value_dim(shape()); }
  float scale() const;  ///< multiplies scores
  DType wire() const { return wire_; }
  /// Bytes of a row's query as it travels, and of its result with the log-sums, which are fp32.
  int64_t query_bytes(const KvShape& shape) const {
    return num_heads_ * query_dim(shape) * size_of(wire_);
  }
  int64_t result_bytes(const KvShape& shape) const {
    return num_heads_ * (value_dim(shape) * size_of(wire_) + size_of(DType::fp32));
  }
  kernels::StoredKeys cached(int64_t layer) const { return cache_.stored_keys(layer); }
  TensorView queries(device::Buffer& buffer, int64_t rows, DType type) const {
    return buffer.tensor(type, {rows, num_heads_, query_dim()});
  }
  Partial partial(Buffers& buffers, int64_t rows) const;
  /// The same for results that come from another rank.
  Partial coming(Buffers& buffers, int64_t rows) const;
  /// The layer's results with their log-sums, which are valid until the next call.
  Partial results(const TensorView& out) { return {out, lse(lse_, out.rows())}; }
  /// Workspaces: results of a rank's queries over this rank's keys, and of this rank's queries over
  /// that rank's keys.
  Buffers& away(int rank) { return away_[rank]; }
  Buffers& home(int rank) { return home_[rank]; }

  /// Adds the FLOPs for the keys that the rows see. The keys stand at the positions in `keys`.
  void count_flops(AttentionCall& call, const std::vector<parallel::GlobalRange>& rows,
                   const std::vector<parallel::StridedRange>& keys) const;

  /// `v` is absent where values are the beginnings of keys.
  void store(int64_t layer, const TensorView& k, const TensorView& v,
             std::span<const int64_t> slots);
  /// Does kernels::rotate_and_store with the layer's cache, which `heads` leaves out.
  void rotate_and_store(int64_t layer, kernels::RotateAndStoreArgs heads,
                        std::span<const int64_t> slots);
  void attend(int64_t layer, const AttentionCall& call, const TensorView& q,
              const kernels::StoredKeys& keys, const Partial& to);
  /// Adds keys to the result in `to`.
  void attend_more(int64_t layer, const AttentionCall& call, const TensorView& q,
                   const kernels::StoredKeys& keys, const Partial& to);
  /// kernels::Backend::query_type for the cache's keys; fp32 where layers differ in it.
  DType query_type() const;
  /// The type of queries that have travelled: as they come, if attention takes this type.
  DType visitor_type() const { return wire_ == query_type() ? wire_ : DType::fp32; }
  /// Returns the queries for several calls. Where each call would round them, they are rounded here,
  /// into memory that the next call of this function takes again.
  TensorView queries_of_calls(const TensorView& q);
  /// Sets each layer's sink logits: one number for each of this rank's heads, [num_heads] in a float
  /// type. A sink competes with a row's keys for its attention and has no value. Empty: there are
  /// none.
  void set_sink_logits(std::vector<TensorView> logits) { sink_logits_ = std::move(logits); }
  bool has_sinks() const { return !sink_logits_.empty(); }
  /// Merges the layer's sinks into results over all keys of the rows. Call it once for each row,
  /// however its keys were divided.
  void add_sinks(int64_t layer, const Partial& to);
  /// Merges a part into the rows `rows` of `into`. If `rows` is empty, the part has all rows.
  void merge(const Partial& part, const Partial& into, std::span<const int64_t> rows = {});

  /// Adds the runs of tokens that stand at `positions` and lie one after the other in `slots`. The
  /// slots of the first head begin at element `offset` of the memory. The slots of each next head
  /// begin `head_stride` elements further on. `shape`: of the layers' keys.
  static void add_runs(std::vector<kernels::KeyRun>& runs,
                       const std::vector<parallel::StridedRange>& positions,
                       const std::vector<parallel::SlotRange>& slots, const KvShape& shape,
                       int64_t offset, int64_t head_stride);
  /// Sends away[r] to rank r and receives home[r], which is `coming`, from there. The call is
  /// collective over the ring.
  void send_home(const std::vector<Partial>& away, const std::vector<Partial>& home);
  void copy(const TensorView& from, const TensorView& to) const { compute_.copy(from, to); }
  void wait(comm::Transfer& transfer, const char* name, int64_t bytes) {
    compute_.wait(transfer, name, bytes);
  }

 private:
  TensorView outputs(device::Buffer& buffer, int64_t rows, DType type) const {
    return buffer.tensor(type, {rows, num_heads_, value_dim()});
  }
  TensorView lse(device::Buffer& buffer, int64_t rows) const {
    return buffer.tensor(DType::fp32, {rows, num_heads_});
  }
  void attend(int64_t layer, const AttentionCall& call, const TensorView& q,
              const kernels::StoredKeys& keys, const Partial& to, kernels::AttentionFrom from);
  struct StoredHeads {
    kernels::StoredKeys keys;
    int64_t heads = 0;  ///< that have keys
  };
  void attend_stored(int64_t layer, const AttentionCall& call, const TensorView& q,
                     const StoredHeads& stored, const Partial& to, kernels::AttentionFrom from);
  void attend_expanded(int64_t layer, const AttentionCall& call, const TensorView& q,
                       const kernels::StoredKeys& keys, const Partial& to,
                       kernels::AttentionFrom from);
  /// A part of a call: the keys that are made at a time.
  struct ExpandedTile {
    LatentTile latents;
    int64_t first_row = 0;  ///< among those of the call
    AttentionCall call;     ///< of its rows and of the keys that are made
  };
  /// Valid for the pass.
  const std::vector<ExpandedTile>& tiles_of(const AttentionCall& call);
  StoredHeads expand(const LatentTile& tile, const void* latents);

  comm::Communicator* ring_ = nullptr;
  Compute compute_;
  KvCache& cache_;
  int64_t num_heads_;
  std::vector<kernels::Window> windows_;       ///< by layer
  std::vector<kernels::Window> window_kinds_;  ///< each window once
  kernels::RowInvariant row_invariant_;
  std::optional<float> scale_;
  DType wire_;
  int layer_kind_ = 0;
  std::vector<TensorView> sink_logits_;  ///< by layer, or empty
  Buffers sink_part_;
  KeyMessages messages_;
  std::vector<int64_t> row_places_;  ///< 0, 1, … of queries_of_calls
  device::Buffer rounded_q_;
  Buffers part_;       ///< of keys that are added, where the backend continues no results
  Buffers tile_part_;  ///< likewise, of a tile
  std::optional<parallel::LatentHead> expanded_;  ///< in this pass
  Expansion expansion_;
  std::map<const AttentionCall*, std::vector<ExpandedTile>> tiles_;  ///< of the pass's calls
  device::Buffer latents_, expanded_k_, expanded_v_;                 ///< of a tile
  device::Buffer lse_;
  std::vector<Buffers> away_, home_;     ///< by rank
  std::vector<device::Buffer> leaving_;  ///< by rank: results as they travel
};

}  // namespace pecia::attention
