// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The all-to-alls of Ulysses. A rank begins with some of the rows and all heads of its weights.
/// The exchange gives it all rows with a shard of the heads, and another exchange brings the
/// outputs back. Every head goes to exactly the ranks that need it. A KV head goes to several ranks
/// if there are more ranks than KV heads (kv_exchange.hpp). Source: DeepSpeed Ulysses; CSPS §3.2.1
/// (SP-NTP).
///
/// Keys and values leave as soon as they are made. Queries arrive and outputs leave rank by rank.
/// At distance d this rank attends the rows of rank (own + d) mod N, and rank (own − d) mod N
/// attends its rows.

#include <memory>
#include <vector>

#include "lib/model/attention/kv_exchange.hpp"

namespace pecia::attention {

class HeadExchange {
 public:
  /// `wire`: fp32 or bf16, the type in which heads of fp32 travel.
  explicit HeadExchange(const Compute& compute, DType wire = DType::fp32);
  HeadExchange(const HeadExchange&) = delete;
  HeadExchange& operator=(const HeadExchange&) = delete;

  /// Begins a pass. The layers that follow exchange heads in this way. `group` must outlive them.
  /// In each layer every rank of the group calls the functions below in this order. It calls
  /// wait_queries and start_outputs once for each distance, in the order of the distances, and the
  /// others once.
  void begin_pass(comm::Communicator& group, ExchangePlan plan);

  /// KvExchange::start, and below its wait.
  void start_keys(const TensorView& k, const TensorView& v) { keys_.start(k, v); }

  /// Begins to send the queries. q is [own rows, held query heads, head_dim], dense, of a type that
  /// is the same on all ranks of the group. It is copied, too. Returns the queries of all rows with
  /// the heads wanted here, of q's type. The own queries are there at once.
  TensorView start_queries(const TensorView& q);

  using Keys = KvExchange::Keys;
  Keys wait_keys() { return keys_.wait(); }

  /// Returns when the queries of the rank at `distance` have come.
  void wait_queries(int distance);

  /// Sends the outputs of the rank at `distance` home. `all` is [all rows, wanted query heads,
  /// value_dim]. It must not change until wait_outputs.
  void start_outputs(int distance, const TensorView& all);

  /// Waits for the outputs and fills in `out`, which is [own rows, held query heads, value_dim].
  void wait_outputs(const TensorView& all, const TensorView& out);

 private:
  int at(int distance) const;  ///< the rank at this distance
  TensorView home(int rank);   ///< outputs of the own rows with the heads that `rank` attends

  Compute compute_;
  DType wire_;
  KvExchange keys_;
  device::Buffer q_, arrived_q_;  ///< `arrived_q_` where heads travel in another type
  std::vector<device::Buffer> packed_q_, packed_out_, home_;  ///< by rank

  // The pass.
  comm::Communicator* group_ = nullptr;
  ExchangePlan plan_;
  int64_t num_rows_ = 0, head_dim_ = 0, value_dim_ = 0;

  // The layer.
  TensorView all_queries_, arrived_queries_;
  std::vector<std::unique_ptr<comm::Transfer>> queries_, outputs_;  ///< by distance, from 1
};

}  // namespace pecia::attention
