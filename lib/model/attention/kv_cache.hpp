// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank's store of keys and values, and which of its slots belong to which sequence.
///
/// Layout: each layer has K and V of [num_kv_heads, capacity, head_dim], so that the slots of one
/// head lie next to each other. Where values are the beginnings of keys (latent attention), it has K
/// alone. In fp8 it also has their scales, [num_kv_heads, capacity] each
/// (kernels/api/kv_store.hpp). A slot is a single token, so any part of any sequence may lie on any
/// rank. Layers that keep recent tokens alone have a capacity and slots of their own
/// (recent_slots.hpp). They are the last ones of the memory.

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
  /// Counts the bytes that all layers store of one token.
  int64_t bytes_per_token() const { return layers * layer_bytes_per_token(); }
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

/// Returns the slots of tokens [first, first + count), where `slots` has one slot for each token.
/// Throws InvalidArgument if there are more tokens than slots.
std::vector<parallel::SlotRange> part_of(const std::vector<parallel::SlotRange>& slots,
                                         int64_t first, int64_t count);

int64_t num_slots(const std::vector<parallel::SlotRange>& ranges);

/// Appends all slots of the ranges.
void append_slots(std::vector<int64_t>& to, const std::vector<parallel::SlotRange>& ranges);

class KvCache {
 public:
  /// Makes room for `capacity` tokens in memory of `device`, which must outlive this object; in
  /// layers that keep recent tokens, for as many as `recent` says. Memory of the host is taken from
  /// the system as slots are first written.
  KvCache(const KvShape& shape, int64_t capacity, device::Device& device, RecentLayers recent = {});

  const KvShape& shape() const { return shape_; }
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

  /// The keys, or the values, of one layer.
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

  KvShape shape_;
  RecentLayers recent_;
  SlotPool pool_;
  std::vector<int64_t> first_slot_;  ///< by layer: slots of the layers before it in the memory
  int64_t all_slots_ = 0;            ///< of all layers
  device::Buffer storage_;
  std::unordered_map<parallel::SequenceId, std::vector<Slots>> taken_;  ///< slots by part
};

}  // namespace pecia::attention
