// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tokens of the parts here as lists in the device's memory: where each token lies, in the order
/// in which levels keep them. Keys have a list for each KV head, of cached tokens and of rows. Queries
/// have one for all heads, or one for each. How long the lists are follows from numbers alone, so the
/// host never reads them.

#include <array>
#include <vector>

#include "lib/model/attention/level_layout.hpp"
#include "lib/model/attention/level_sequence.hpp"

namespace pecia::attention {

/// Numbers in the device's memory that say which tokens are kept first.
struct TokenNumbers {
  struct Part {
    int64_t cached = 0, rows = 0;  ///< the first one's number
    int64_t head_stride = 0;       ///< from one KV head's to the next one's
  };
  TensorView numbers;       ///< [any] fp32
  std::vector<Part> parts;  ///< [sequence][part]
};

class TokenLists {
 public:
  enum Kind { cached_keys, new_keys, queries };

  /// `compute` must outlive this object.
  TokenLists(const Compute& compute, int64_t kv_heads, bool queries_by_head);

  /// Begins a pass; nothing is in the lists yet. `sequences` must outlive it. `here`: whose parts'
  /// tokens are here.
  void begin_pass(const std::vector<SequenceParts>& sequences, const parallel::PartsHere& here);

  /// Lists the keys, or the queries, in the order in which levels [first, last] keep them: of what
  /// each of them keeps by the rule, its tokens come before the others. Where the rule drops nothing
  /// the order is that of the tokens, and no numbers are read.
  void order_keys(const TokenNumbers& numbers, const parallel::LevelRule& rule, int first,
                  int last);
  void order_queries(const TokenNumbers& numbers, const parallel::LevelRule& rule, int first,
                     int last);

  /// Where some tokens lie: slots of the cache, or rows of q. [tokens] int32.
  TensorView of(Kind kind, const LevelLayout::Pick& pick) const;

  int64_t kv_heads() const { return kv_heads_; }

 private:
  /// The lists of a kind and a part, one after the other.
  struct Lists {
    int64_t first = 0, tokens = 0;
  };
  struct Order;
  const Lists& lists(Kind kind, int sequence, int part) const;
  void add(Order& order, Kind kind, int sequence, int part, const TokenNumbers& numbers,
           const std::vector<std::vector<int64_t>>& counts) const;
  void run(const Order& order, const TokenNumbers& numbers) const;
  int64_t heads(Kind kind) const { return kind == queries && !queries_by_head_ ? 1 : kv_heads_; }

  Compute compute_;
  int64_t kv_heads_;
  bool queries_by_head_;
  const std::vector<SequenceParts>* sequences_ = nullptr;
  parallel::PartsHere here_;
  std::array<std::vector<Lists>, 3> lists_;  ///< by kind: [sequence][part here]
  int64_t entries_ = 0;
  device::Buffer places_;
};

}  // namespace pecia::attention
