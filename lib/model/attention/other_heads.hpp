// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers of tokens over all heads, where a rank has all tokens of some heads (TP). Each rank knows
/// the numbers of its own heads, and the ranks tell each other. All of them get the same bits. The
/// numbers stay in the device's memory.

#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/sparse_totals.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::attention {

class OtherHeads {
 public:
  /// All references must outlive this object. `ranks` have the same tokens, each other heads, in the
  /// order of the heads. `kv_holders` ranks next to each other hold the same KV head and parts of
  /// its group of query heads. `links`: from this rank to each of them.
  OtherHeads(const Compute& compute, comm::Communicator& ranks, int kv_holders,
             std::vector<comm::LinkLevel> links);

  // Numbers are [any] fp32, and none is negative or NaN. All ranks give as many. The calls return
  // what this rank sent.
  /// Each number becomes the largest one of all ranks. Collective over the ranks.
  LinkBytes largest(const TensorView& numbers);
  /// Each number becomes the sum over the ranks that hold the same KV head. Collective over these.
  LinkBytes sum_of_kv_head(const TensorView& numbers);

 private:
  LinkBytes combine(const char* name, int first, int count, const TensorView& numbers,
                    kernels::CombineRows how);

  Compute compute_;
  comm::Communicator& ranks_;
  int kv_holders_;
  std::vector<comm::LinkLevel> links_;
  std::vector<int32_t> in_order_;  ///< the ranks
  device::Buffer of_ranks_;        ///< every rank's numbers
};

}  // namespace pecia::attention
