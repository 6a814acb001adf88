// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank's store of keys and values, and which of its slots belong to which sequence.
///
/// Layout: each layer has K and V of [num_kv_heads, capacity, head_dim], so that the slots of one
/// head lie next to each other. Where values are the beginnings of keys (latent attention), it has K
/// alone. In fp8 it also has their scales, [num_kv_heads, capacity] each
/// (kernels/api/kv_store.hpp). A slot is a single token, so any part of any sequence may lie on any
/// rank. Layers that keep recent tokens alone have a capacity and slots of their own
/// (recent_slots.hpp). They are the last ones of the memory. Layers may have heads of their own
/// (LayerKeys), or none: then they attend what an earlier layer stores.

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "kernels/api/attention.hpp"
#include "lib/base/core/fp8_vector.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/model/attention/slot_pool.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::attention {

struct KvShape {
  int64_t layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::fp32;
  /// Above 0: a value is the beginning of its key, of this length, and only keys are stored.
  int64_t values_in_keys = 0;

  bool stores_values() const { return values_in_keys == 0; }
  int64_t value_dim() const { return stores_values() ? head_dim : values_in_keys; }
  /// Counts the bytes that one layer stores of one token.
  int64_t layer_bytes_per_token() const {
    return (stores_values() ? 2 : 1) * num_kv_heads * vector_bytes(dtype, head_dim);
  }
  /// Counts the bytes that this number of layers stores of one token.
  int64_t bytes_per_token() const { return layers * layer_bytes_per_token(); }

  bool operator==(const KvShape&) const = default;
};

/// The keys and values that a layer attends, where layers are not alike.
struct LayerKeys {
  int64_t num_kv_heads = 0, head_dim = 0;
  /// The layer that stores them: itself, or an earlier one of the same kind; none: it attends nothing.
  int64_t source = 0;

  static constexpr int64_t none = -1;
};

/// Which tokens a layer keeps of each sequence.
enum class Retention : uint8_t {
  all,
  recent  ///< those that its sliding window still reaches
};

/// The layers that keep recent tokens alone.
struct RecentLayers {
  kernels::Window window = {};  ///< the widest of theirs; none: there are no such layers
  int64_t capacity = 0;         ///< slots in each of them, a multiple of RecentSlots::block
  std::vector<bool> are = {};   ///< by layer; empty: none is
  int64_t margin = 0;           ///< as many rows before the next one have their windows, too

  bool any() const { return static_cast<bool>(window); }
  /// The first position that is kept of a sequence of this length; may be below 0.
  int64_t first_kept(int64_t length) const {
    return window.first_seen(std::max<int64_t>(0, length - margin));
  }
};

/// Layers whose keys have one shape and are of the same tokens. What a pass plans for one of them
/// holds for all of them.
struct LayerKind {
  Retention retention = Retention::all;
  KvShape shape;  ///< `layers`: of the whole cache

  bool operator==(const LayerKind&) const = default;
};

/// Returns the slots of tokens [first, first + count), where `slots` has one slot for each token.
/// Throws InvalidArgument if there are more tokens than slots.
std::vector<parallel::SlotRange> part_of(const std::vector<parallel::SlotRange>& slots,
                                         int64_t first, int64_t count);

int64_t num_slots(const std::vector<parallel::SlotRange>& ranges);

/// Appends all slots of the ranges.
void append_slots(std::vector<int64_t>& to, const std::vector<parallel::SlotRange>& ranges);

/// Bytes of one slot of one head in a tensor of a cache: [heads, slots, head_dim] or [heads, slots].
inline int64_t bytes_of_slot(const TensorView& cached) {
  return (cached.rank() == 3 ? cached.size(2) : 1) * size_of(cached.dtype());
}

class KvCache {
 public:
  /// Makes room for `capacity` tokens in memory of `device`, which must outlive this object; in
  /// layers that keep recent tokens, for as many as `recent` says. Memory of the host is taken from
  /// the system as slots are first written. `each`: by layer; empty: all layers store what `shape`
  /// says, else that has only what they have in common, the number of layers and the type.
  KvCache(const KvShape& shape, int64_t capacity, device::Device& device, RecentLayers recent = {},
          std::vector<LayerKeys> each = {});

  const KvShape& shape() const { return shape_; }  ///< of all layers that are alike
  const KvShape& shape(int64_t layer) const { return kinds_[kind(layer)].shape; }
  int64_t layers() const { return shape_.layers; }
  /// The kinds of layers, each once, and the place of a layer's kind among them.
  const std::vector<LayerKind>& kinds() const { return kinds_; }
  int kind(int64_t layer) const { return kind_of_.at(layer); }
  /// The layer that stores what this layer attends.
  int64_t source(int64_t layer) const { return each_.empty() ? layer : each_.at(layer).source; }
  bool is_stored(int64_t layer) const { return source(layer) == layer; }
  /// Whether this layer attends what another one stores.
  bool attends_other(int64_t layer) const {
    return source(layer) != layer && source(layer) != LayerKeys::none;
  }
  /// Whether a later layer attends what this layer stores.
  bool is_shared(int64_t layer) const;
  /// Bytes of a token in all layers together, if all of them have it.
  int64_t bytes_per_token() const;
  const RecentLayers& recent() const { return recent_; }
  Retention retention(int64_t layer) const {
    return recent_.any() && recent_.are.at(layer) ? Retention::recent : Retention::all;
  }
  /// Counts the slots of layers that keep all tokens, or recent ones.
  int64_t capacity(Retention retention = Retention::all) const {
    return retention == Retention::all ? pool_.capacity() : recent_.capacity;
  }
  int64_t bytes() const { return storage_.bytes(); }
  /// The functions from here on are about slots of layers that keep all tokens.
  int64_t free_tokens() const { return pool_.free(); }

  /// Takes slots for a sequence, in `parts` equal parts. Throws InvalidArgument if fewer slots are
  /// free.
  void reserve(parallel::SequenceId sequence, int64_t tokens, int parts = 1);
  void release(parallel::SequenceId sequence);
  /// Gives a sequence more slots, or takes its last ones back, in equal parts. Throws InvalidArgument
  /// if fewer slots are free.
  void resize(parallel::SequenceId sequence, int64_t tokens);

  /// Throws InvalidArgument unless each slot is free, or a sequence has it once.
  void verify() const;

  /// Returns the slots of a part of the sequence. Its i-th token is in the i-th slot of these
  /// ranges.
  const std::vector<parallel::SlotRange>& slots(parallel::SequenceId sequence, int part = 0) const {
    return parts(sequence).at(part);
  }

  /// The keys, or the values, that one layer attends.
  struct Stored {
    TensorView vectors;  ///< [num_kv_heads, capacity(retention(layer)), head_dim]
    TensorView scales;   ///< the same without head_dim, fp32; absent unless the vectors are fp8
  };
  Stored k(int64_t layer) const { return at(layer, 0); }
  /// Values of a cache that stores them.
  Stored v(int64_t layer) const;
  /// What the layer stores: keys, and values if these are stored.
  std::vector<Stored> stored(int64_t layer) const;
  /// Both, as attention takes them.
  kernels::StoredKeys stored_keys(int64_t layer) const;

 private:
  using Slots = std::vector<parallel::SlotRange>;
  Stored at(int64_t layer, int64_t side) const;
  const std::vector<Slots>& parts(parallel::SequenceId sequence) const;
  void find_kinds();

  /// Where a layer's tensors begin in the memory. All vectors come before all scales.
  struct Place {
    int64_t vectors = 0;  ///< bytes
    int64_t scales = 0;   ///< numbers, from the first scale on
  };
  int64_t lay_out();

  KvShape shape_;
  RecentLayers recent_;
  std::vector<LayerKeys> each_;
  std::vector<LayerKind> kinds_;
  std::vector<int> kind_of_;  ///< by layer
  SlotPool pool_;
  std::vector<Place> places_;  ///< by layer; of layers that store nothing, any
  int64_t vector_bytes_ = 0;   ///< of all layers
  device::Buffer storage_;
  std::unordered_map<parallel::SequenceId, std::vector<Slots>> taken_;  ///< slots by part
};

}  // namespace pecia::attention
