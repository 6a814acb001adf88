#pragma once
/// Ulysses' all-to-alls: from rows cut over ranks, with all heads of a rank's weights, to all rows
/// with a shard of the heads, and back. Every head goes to exactly the ranks that need it; a KV
/// head goes to several where there are more ranks than KV heads. Source: DeepSpeed Ulysses; CSPS
/// §3.2.1 (SP-NTP).

#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/device/buffer.hpp"
#include "lib/parallel/heads.hpp"
#include "lib/parallel/sharding.hpp"
#include "lib/report/spans.hpp"

namespace pecia::context {

/// What the ranks of an exchange agree on for a pass; by rank of the group.
struct ExchangePlan {
  std::vector<parallel::RowRange> rows;     ///< whose rows they are
  parallel::HeadShard held;                 ///< heads that this rank's rows have before
  std::vector<parallel::HeadShard> wanted;  ///< heads that each rank attends
};

class HeadExchange {
 public:
  explicit HeadExchange(report::Recorder& recorder) : recorder_(recorder) {}

  struct Heads {
    TensorView q, k, v;  ///< [rows, heads, head_dim] fp32, dense
  };

  /// This rank's rows with the heads held in, all rows with the heads wanted out; the result is
  /// valid until the next call. Collective over `group`, as is `to_rows`.
  Heads to_heads(comm::Communicator& group, const ExchangePlan& plan, const Heads& mine);

  /// The inverse for attention's output: `all` is [all rows, wanted query heads, head_dim], `out`
  /// [own rows, held query heads, head_dim]; both dense.
  void to_rows(comm::Communicator& group, const ExchangePlan& plan, const TensorView& all,
               const TensorView& out);

 private:
  report::Recorder& recorder_;
  device::Buffer q_, k_, v_;
  std::vector<device::Buffer> packed_;  ///< by rank
};

}  // namespace pecia::context
