// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

using parallel::SequenceId;

SequenceRuns PassCalls::in_cache(const LayerKind& kind) const {
  const auto& [retention, shape] = kind;
  const int64_t head_stride = steps_.cache().capacity(retention) * shape.head_dim;
  SequenceRuns all;
  for (const SequenceId sequence : rows_.key_sequences())
    steps_.add_runs(all.emplace_back(), rows_.kept_ranges(retention, sequence, rows_.index()),
                    rows_.ledger().kept_slots(retention, sequence), shape, 0, head_stride);
  return all;
}

SequenceRuns PassCalls::in_message(const LayerKind& kind, int rank) const {
  const auto& [retention, shape] = kind;
  SequenceRuns all;
  int64_t offset = 0;  // among the tokens of the message
  for (const SequenceId sequence : rows_.key_sequences()) {
    const int64_t tokens = rows_.kept(retention, sequence, rank);
    steps_.add_runs(all.emplace_back(), rows_.kept_ranges(retention, sequence, rank), {{0, tokens}},
                    shape, offset * shape.num_kv_heads * shape.head_dim, tokens * shape.head_dim);
    offset += tokens;
  }
  return all;
}

AttentionCall PassCalls::call(int rank, const SequenceRuns& runs) const {
  AttentionCall call;
  add(call, rows_.rows_at(rank), runs);
  return call;
}

void PassCalls::add(AttentionCall& call, const std::vector<SequenceRows>& rows,
                    const SequenceRuns& runs) const {
  for (const SequenceRows& of : rows) {
    const auto first_row = static_cast<int64_t>(call.positions.size());
    of.append_to(call.positions);
    kernels::AttentionItem item{first_row, std::ssize(call.positions) - first_row,
                                static_cast<int64_t>(call.runs.size()), 0};
    std::vector<parallel::StridedRange> seen;
    for (const SequenceId member : rows_.lineage(of.sequence))
      for (const kernels::KeyRun& run : runs[rows_.key_index(member)]) {
        call.runs.push_back(run);
        seen.push_back({run.position, run.num_keys, run.stride});
      }
    steps_.count_flops(call, of.ranges, seen);
    item.num_runs = static_cast<int64_t>(call.runs.size()) - item.first_run;
    call.items.push_back(item);
  }
}

}  // namespace pecia::attention
