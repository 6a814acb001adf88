// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Brings the keys and values of all rows to the ranks that want their heads: directly, or in two
/// exchanges by way of relays, which pass on what they got as it came (ranks/parallel/kv_routes.hpp).
/// The numbers are the same either way.

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "lib/model/attention/head_blocks.hpp"

namespace pecia::attention {

class KvExchange {
 public:
  /// `wire`: fp32 or bf16, the type in which heads of fp32 travel.
  KvExchange(const Compute& compute, DType wire);

  /// Begins a pass, in whose layers every rank of the group calls `start` and then `wait`. `group`
  /// and `plan` outlive the pass.
  void begin_pass(comm::Communicator& group, const ExchangePlan& plan);

  /// Begins to send the keys and values of this rank's rows. k and v are [own rows, held KV heads,
  /// head_dim], fp32, dense; v may be absent. They are copied.
  void start(const TensorView& k, const TensorView& v);

  struct Keys {
    TensorView k,
        v;  ///< [all rows, wanted KV heads, head_dim], fp32, or absent; valid until the next layer
  };
  Keys wait();

 private:
  /// Keys, or values.
  struct Heads {
    device::Buffer all_memory, arrived_memory, relayed_memory;
    std::vector<device::Buffer> packed = {};  ///< by rank
    TensorView all = {}, arrived = {};        ///< of all ranks; `arrived` in the type that travels
    TensorView relayed = {};  ///< rows that come by way of relays, or leave by this one
    std::unique_ptr<comm::Transfer> first = {}, onward = {};
  };
  /// Rows of `relayed` that a relay passes on.
  struct Batch {
    int relay;
    parallel::RowRange rows;
  };

  std::span<Heads> sides() { return std::span(heads_).first(sides_); }
  /// Where the rows of a rank arrive.
  TensorView arrival_of(const Heads& heads, int rank) const;
  comm::Blocks blocks_from_sources(Heads& heads, const TensorView& x);
  comm::Blocks blocks_from_relays(const Heads& heads);
  void pass_on();

  Compute compute_;
  DType wire_;
  std::array<Heads, 2> heads_;
  size_t sides_ = 2;  ///< of heads_ in the layer: keys alone, or values, too

  // The pass.
  comm::Communicator* group_ = nullptr;
  const ExchangePlan* plan_ = nullptr;
  std::vector<Batch> batches_;
  std::vector<int64_t>
      first_relayed_;  ///< by rank: its rows' begin in `relayed`; −1: they come directly
  int64_t relayed_rows_ = 0;

  // The layer.
  int64_t bytes_ = 0, bytes_onward_ = 0;  ///< sent here for keys and values
};

}  // namespace pecia::attention
