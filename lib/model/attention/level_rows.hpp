// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of keys and values of one head each, in a cache, an arena or a message, and copies between
/// them: as many as are needed at once are one op.

#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/kv_cache.hpp"

namespace pecia::attention {

/// Bytes of a message in memory of a device, where the next one may begin.
inline int64_t aligned(int64_t bytes) {
  constexpr int64_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

struct KeyRows {
  TensorView k, v;                ///< [tokens, head_dim]
  TensorView k_scales, v_scales;  ///< [tokens, 1] fp32; absent unless keys are fp8

  KeyRows slice(int64_t begin, int64_t count) const;
};

/// The slots of one head in a layer of the cache.
KeyRows slots_of_head(const KvCache& cache, int64_t layer, int64_t head);

/// Room for keys and values. An entry is the key and the value of one head of a token.
class KeyArena {
 public:
  KeyArena(const Compute& compute, const KvShape& shape);

  /// Makes room; what is there is lost.
  void reserve(int64_t entries);
  KeyRows rows(int64_t begin, int64_t count) const;
  kernels::StoredKeys keys() const {
    return {k_.data(), v_.data(), k_scales_.as<float>(), v_scales_.as<float>()};
  }

 private:
  KvShape shape_;
  device::Buffer k_, v_, k_scales_, v_scales_;
};

/// A message to or from one rank: keys and values, and rows of queries.
struct TokenMessage {
  KeyRows keys;
  TensorView queries;  ///< [rows, width]
  std::span<std::byte> bytes;
};

/// What messages are made of.
struct MessageShape {
  KvShape kv;
  int64_t width = 0;  ///< of a query: a KV head's group of heads
  DType wire = DType::fp32;

  int64_t room(int64_t keys, int64_t queries) const {
    return aligned(static_cast<int64_t>(at(nullptr, keys, queries).bytes.size()));
  }
  /// K, V, queries, and in fp8 the scales of K and V, without padding between them.
  TokenMessage at(std::byte* begin, int64_t keys, int64_t queries) const;
};

/// Copies of rows by lists (kernels::PickedRows).
class RowPicks {
 public:
  void add(const TensorView& from, const TensorView& list, const TensorView& to) {
    if (to.rows() > 0) picks_.push_back({from, list, to});
  }
  void add(const KeyRows& from, const TensorView& list, const KeyRows& to);
  /// Does nothing if there are none.
  void run(const Compute& compute) const;

 private:
  std::vector<kernels::PickedRows> picks_;
};

}  // namespace pecia::attention
