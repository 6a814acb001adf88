// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The all-to-alls of Ulysses. A rank begins with some of the rows and all heads of its weights.
/// The exchange gives it all rows with a shard of the heads, and another exchange brings the
/// outputs back. Every head goes to exactly the ranks that need it. A KV head goes to several ranks
/// if there are more ranks than KV heads. Source: DeepSpeed Ulysses; CSPS §3.2.1 (SP-NTP).
///
/// Keys and values leave as soon as they are made. Queries arrive and outputs leave rank by rank.
/// At distance d this rank attends the rows of rank (own + d) mod N, and rank (own − d) mod N
/// attends its rows.

#include <array>
#include <memory>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/heads.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::attention {

/// What the ranks of an exchange agree on for a pass. The vectors have an entry for each rank of
/// the group.
struct ExchangePlan {
  std::vector<parallel::RowRange> rows;  ///< rows of each rank
  parallel::HeadShard held;              ///< heads that this rank's rows have before the exchange
  std::vector<parallel::HeadShard> wanted;  ///< heads that each rank attends
};

class HeadExchange {
 public:
  /// `wire`: fp32 or bf16, the type in which heads of fp32 travel.
  explicit HeadExchange(const Compute& compute, DType wire = DType::fp32);

  /// Begins a pass. The layers that follow exchange heads in this way. `group` must outlive them.
  /// In each layer every rank of the group calls the functions below in this order. It calls
  /// wait_queries and start_outputs once for each distance, in the order of the distances, and the
  /// others once.
  void begin_pass(comm::Communicator& group, ExchangePlan plan);

  /// Begins to send the keys and values of this rank's rows with the KV heads held. k and v are
  /// [own rows, held KV heads, head_dim], fp32, dense. They are copied.
  void start_keys(const TensorView& k, const TensorView& v);

  /// Begins to send the queries. q is [own rows, held query heads, head_dim], dense, of a type that
  /// is the same on all ranks of the group. It is copied, too. Returns the queries of all rows with
  /// the heads wanted here, of q's type. The own queries are there at once.
  TensorView start_queries(const TensorView& q);

  struct Keys {
    TensorView k, v;  ///< [all rows, wanted KV heads, head_dim], fp32; valid until the next layer
  };
  Keys wait_keys();

  /// Returns when the queries of the rank at `distance` have come.
  void wait_queries(int distance);

  /// Sends the outputs of the rank at `distance` home. `all` is [all rows, wanted query heads,
  /// head_dim]. It must not change until wait_outputs.
  void start_outputs(int distance, const TensorView& all);

  /// Waits for the outputs and fills in `out`, which is [own rows, held query heads, head_dim].
  void wait_outputs(const TensorView& all, const TensorView& out);

 private:
  int at(int distance) const;  ///< the rank at this distance
  TensorView rows_of(const TensorView& all, int rank) const;
  TensorView home(int rank);  ///< outputs of the own rows with the heads that `rank` attends
  DType travels_in(const TensorView& x) const {
    return x.dtype() == DType::fp32 ? wire_ : x.dtype();
  }
  /// Where rows of x arrive: in x itself if they travel in its type, else in `buffer`.
  TensorView arrivals(const TensorView& x, device::Buffer& buffer) const;
  /// Puts the rows of a rank that have arrived where they belong.
  void take_in(const TensorView& arrived, const TensorView& all, int rank) const;

  void copy_heads(const TensorView& from, int64_t from_head, const TensorView& to, int64_t to_head,
                  int64_t width) const;
  TensorView pack_heads(const TensorView& from, int64_t first_held,
                        const parallel::HeadRange& wanted, device::Buffer& buffer) const;

  Compute compute_;
  DType wire_;
  device::Buffer q_, k_, v_;
  device::Buffer arrived_q_, arrived_k_, arrived_v_;  ///< where heads travel in another type
  std::vector<device::Buffer> packed_k_, packed_v_, packed_q_, packed_out_, home_;  ///< by rank

  // The pass.
  comm::Communicator* group_ = nullptr;
  ExchangePlan plan_;
  int64_t num_rows_ = 0, head_dim_ = 0;

  // The layer.
  Keys keys_, arrived_keys_;
  int64_t keys_bytes_ = 0;  ///< bytes sent for keys and values
  TensorView all_queries_, arrived_queries_;
  std::array<std::unique_ptr<comm::Transfer>, 2> keys_transfers_;   ///< of keys, of values
  std::vector<std::unique_ptr<comm::Transfer>> queries_, outputs_;  ///< by distance, from 1
};

}  // namespace pecia::attention
