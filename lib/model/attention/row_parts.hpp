// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention of a rank that has all keys (a ring of one rank), a part of its rows at a time. While
/// it attends one part, queries and outputs of others travel (ranks/parallel/attend_parts.hpp), or
/// gathers and sums of other blocks of rows (parallel::row_blocks).

#include "lib/model/attention/attention_steps.hpp"
#include "lib/model/attention/pass_rows.hpp"

namespace pecia::attention {

class RowParts {
 public:
  /// `steps` must outlive this object.
  explicit RowParts(AttentionSteps& steps) : steps_(steps) {}

  /// Plans a pass of one rank. `parts` has the rows of each part; empty: rows go all together. A part
  /// reads no key of the pass's rows behind it, which may not be stored yet.
  void begin_pass(const PassRows& rows, std::vector<parallel::RowRange> parts);
  bool empty() const { return parts_.empty(); }

  /// Attends the rows of a part, whose keys and those of all rows before them are in the cache. q
  /// and out have all rows, as for AttentionPath::run; those of the part are read and written.
  void run(int64_t layer, size_t part, const TensorView& q, const TensorView& out);

 private:
  AttentionSteps& steps_;
  std::vector<parallel::RowRange> parts_;
  std::vector<std::vector<AttentionCall>> calls_;  ///< by kind of layers and part
};

}  // namespace pecia::attention
