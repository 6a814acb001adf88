// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/halo.hpp"

namespace pecia::attention {

using parallel::GlobalRange;
using parallel::HaloSequence;
using parallel::IndexRun;
using parallel::PassSequence;
using parallel::SequenceId;

bool Halo::goes_straight(const PassRows& rows, kernels::Window window) {
  if (window == 0 || rows.size() == 1 || rows.places_any()) return false;
  std::vector<int64_t> tokens;
  for (int rank = 0; rank < rows.size(); ++rank) tokens.push_back(rows.kept(Retention::all, rank));
  return parallel::halo_goes_straight(rows.sequences(), rows.team(), window, tokens);
}

void Halo::begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) {
  rows_ = &rows;
  plans_.clear();
  const PassCalls calls(steps_, rows);
  const std::vector<HaloSequence> seen = sequences();
  for (const kernels::Window window : windows) {
    const LayerKind& kind = steps_.kind(steps_.kind_of_window(window));
    const parallel::Halo plan = parallel::halo_of(seen, rows.size(), rows.index(), window);
    plans_[window] = {messages(kind.retention, plan),
                      calls.call(rows.index(), calls.in_cache(kind)),
                      calls.call(rows.index(), runs_that_come(seen, plan, kind.shape))};
  }
}

/// The tokens of each sequence that the pass sees, by rank, and the rows that see them.
std::vector<HaloSequence> Halo::sequences() const {
  const int size = rows_->size();
  std::vector<HaloSequence> sequences(rows_->key_sequences().size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].rows.resize(size);
    for (int rank = 0; rank < size; ++rank)
      sequences[i].keys.push_back(rows_->ranges(rows_->key_sequences()[i], rank));
  }
  for (const PassSequence& of : rows_->sequences())
    for (const SequenceId member : rows_->lineage(of.sequence)) {
      HaloSequence& seen = sequences[rows_->key_index(member)];
      for (int rank = 0; rank < size; ++rank)
        for (const GlobalRange& range : rows_of(of, rows_->team(), rank))
          seen.rows[rank].push_back(range);
    }
  return sequences;
}

HaloMessages Halo::messages(Retention retention, const parallel::Halo& plan) const {
  const KvLedger& ledger = rows_->ledger();
  const std::vector<SequenceId>& sequences = rows_->key_sequences();
  HaloMessages messages{std::vector<std::vector<MessageBlock>>(rows_->size()),
                        std::vector<int64_t>(rows_->size())};
  for (int rank = 0; rank < rows_->size(); ++rank)
    for (size_t i = 0; i < sequences.size(); ++i) {
      messages.coming[rank] += count_tokens(plan.coming[rank][i]);
      const std::vector<IndexRun>& leaving = plan.leaving[rank][i];
      MessageBlock block{{}, count_tokens(leaving)};
      const int64_t evicted = ledger.evicted(retention, sequences[i], ledger.instance());
      for (const IndexRun& run : leaving) {
        const auto slots =
            part_of(ledger.kept_slots(retention, sequences[i]), run.begin - evicted, run.count);
        block.cached.insert(block.cached.end(), slots.begin(), slots.end());
      }
      if (block.tokens > 0) messages.leaving[rank].push_back(std::move(block));
    }
  return messages;
}

/// The keys that come, one rank after the other.
SequenceRuns Halo::runs_that_come(const std::vector<HaloSequence>& sequences,
                                  const parallel::Halo& plan, const KvShape& shape) const {
  SequenceRuns runs(sequences.size());
  int64_t before = 0;  // tokens
  for (int rank = 0; rank < rows_->size(); ++rank)
    for (size_t i = 0; i < sequences.size(); ++i) {
      const std::vector<IndexRun>& coming = plan.coming[rank][i];
      const int64_t tokens = count_tokens(coming);
      steps_.add_runs(runs[i], positions_of(coming, sequences[i].keys[rank]), {{0, tokens}}, shape,
                      before * shape.num_kv_heads * shape.head_dim, tokens * shape.head_dim);
      before += tokens;
    }
  return runs;
}

void Halo::run(int64_t layer, const LayerRows& x, const Partial& to) {
  const Plan& plan = plans_.at(steps_.window(layer));
  const TensorView queries = steps_.queries_of_calls(x.q);
  steps_.messages().exchange(
      layer, plan.messages,
      [&](const kernels::StoredKeys& keys) { steps_.attend(layer, plan.own, queries, keys, to); },
      [&](const kernels::StoredKeys& keys) {
        steps_.attend_more(layer, plan.coming, queries, keys, to);
      });
}

}  // namespace pecia::attention
