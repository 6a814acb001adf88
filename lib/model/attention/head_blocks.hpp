// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the exchanges of heads have in common: the plan of a pass, and heads as blocks that travel.

#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/parallel/heads.hpp"
#include "lib/ranks/parallel/kv_routes.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::attention {

/// What the ranks of an exchange agree on for a pass. The vectors have an entry for each rank of
/// the group.
struct ExchangePlan {
  std::vector<parallel::RowRange> rows;  ///< rows of each rank
  parallel::HeadShard held;              ///< heads that this rank's rows have before the exchange
  std::vector<parallel::HeadShard> wanted;  ///< heads that each rank attends
  parallel::KvRoutes routes = {};           ///< of keys and values

  int64_t num_rows() const;
  /// The rows of a rank, of all rows [num_rows, …].
  TensorView rows_of(const TensorView& all, int rank) const {
    return all.slice_rows(rows[rank].begin, rows[rank].size());
  }
};

/// Copies `width` heads of all rows, widened or rounded. Both are [rows, heads, head_dim].
void copy_heads(const Compute& compute, const TensorView& from, int64_t from_head,
                const TensorView& to, int64_t to_head, int64_t width);

/// The heads `wanted` of x [rows, heads, head_dim], which begins with head `first_held`, as a dense
/// block of `type` in `buffer`.
TensorView pack_heads(const Compute& compute, const TensorView& x, int64_t first_held,
                      const parallel::HeadRange& wanted, DType type, device::Buffer& buffer);

/// The type in which x travels: fp32 as `wire`, and other types as they are.
inline DType travels_in(const TensorView& x, DType wire) {
  return x.dtype() == DType::fp32 ? wire : x.dtype();
}

/// Where rows of x [rows, heads, head_dim] arrive that travel in `type`: in x itself if it has this
/// type, else in `buffer`.
TensorView arrivals(const TensorView& x, DType type, device::Buffer& buffer);

}  // namespace pecia::attention
