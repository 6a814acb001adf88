// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The all-to-all of a recurrent layer over ranks with other rows of a pass (Ulysses): each rank has
/// some rows with all heads of its weights, and gets all rows with the heads whose states it has. What
/// the recurrence makes of them goes back.

#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::recurrence {

/// Columns of what is projected for a recurrence: [rows, …], fp32.
struct Projected {
  TensorView q, k;  ///< [rows, key_heads · key_dim]
  TensorView v;     ///< [rows, heads · value_dim]
  TensorView a, b;  ///< [rows, heads]; b may be absent
};

/// What goes to a rank, counted from the first of what the ranks of the exchange hold.
struct ChannelPart {
  parallel::RowRange keys, values, heads;
};

class ChannelExchange {
 public:
  ChannelExchange(const attention::Compute& compute, DType wire);

  /// `rows` and `parts`: by rank of the group, which outlives the pass.
  void begin_pass(comm::Communicator& group, std::vector<parallel::RowRange> rows,
                  std::vector<ChannelPart> parts);

  /// Collective over the group: `own` has this rank's rows and all channels, the result all rows and
  /// this rank's part. Valid until the next call.
  Projected spread(const Projected& own);
  /// Collective over the group: `all` [all rows, values of this rank's part] → `out` [own rows, values].
  void bring_home(const TensorView& all, const TensorView& out);

 private:
  int64_t width(int rank) const;
  Projected columns(const TensorView& rows, int rank) const;
  void copy_part(const Projected& own, int rank, const TensorView& to) const;

  attention::Compute compute_;
  DType wire_;
  comm::Communicator* group_ = nullptr;
  std::vector<parallel::RowRange> rows_;
  std::vector<ChannelPart> parts_;
  bool has_b_ = false;
  device::Buffer all_, arrived_;
  std::vector<device::Buffer> packed_, home_;  ///< by rank
};

}  // namespace pecia::recurrence
