// SPDX-License-Identifier: Apache-2.0
/// RingAttention in layers with a sliding window: each rank sends the keys that another one sees
/// straight to it, attends its own keys meanwhile, and then what has come, in one call.

#include <algorithm>

#include "lib/context/ring_attention.hpp"

namespace pecia::context {

using parallel::GlobalRange;
using parallel::HaloSequence;
using parallel::IndexRun;
using parallel::PassSequence;
using parallel::SequenceId;

/// The tokens of each sequence that the pass sees, by rank, and the rows that see them.
std::vector<HaloSequence> RingAttention::halo_sequences(const Pass& pass) const {
  std::vector<HaloSequence> sequences(key_sequences_.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].rows.resize(size());
    for (int rank = 0; rank < size(); ++rank)
      sequences[i].keys.push_back(ranges(key_sequences_[i], rank));
  }
  for (const PassSequence& of : pass)
    for (const SequenceId member : ledger_.map().lineage(of.sequence)) {
      const auto at = std::lower_bound(key_sequences_.begin(), key_sequences_.end(), member);
      HaloSequence& seen = sequences[static_cast<size_t>(at - key_sequences_.begin())];
      for (int rank = 0; rank < size(); ++rank)
        for (const GlobalRange& range : rows_of(of, team_, rank)) seen.rows[rank].push_back(range);
    }
  return sequences;
}

/// Instances that keep keys of others need more than they see, so where any does, all keys go round
/// the ring.
void RingAttention::plan_halos(const parallel::TeamPass& own) {
  if (size() == 1 || !placed_.empty()) return;
  std::vector<int64_t> tokens(size());
  for (int rank = 0; rank < size(); ++rank)
    for (const SequenceId sequence : key_sequences_) tokens[rank] += held(sequence, rank);
  std::vector<HaloSequence> sequences;
  for (const int64_t window : windows_) {
    if (window == 0 || halos_.contains(window) ||
        !parallel::halo_goes_straight(own.rows, team_, window, tokens))
      continue;
    if (sequences.empty()) sequences = halo_sequences(own.rows);
    const parallel::Halo plan = parallel::halo_of(sequences, size(), index_, window);
    halos_[window] = {halo_messages(keeps_of(window), plan),
                      call(own.rows, index_, runs_that_come(sequences, plan))};
  }
}

HaloMessages RingAttention::halo_messages(Keeps keeps, const parallel::Halo& plan) const {
  HaloMessages messages{std::vector<std::vector<MessageBlock>>(size()),
                        std::vector<int64_t>(size())};
  for (int rank = 0; rank < size(); ++rank)
    for (size_t i = 0; i < key_sequences_.size(); ++i) {
      messages.coming[rank] += count_tokens(plan.coming[rank][i]);
      const std::vector<IndexRun>& leaving = plan.leaving[rank][i];
      MessageBlock block{{}, count_tokens(leaving)};
      const int64_t gone = ledger_.gone(keeps, key_sequences_[i], ledger_.instance());
      for (const IndexRun& run : leaving) {
        const auto slots =
            part_of(ledger_.kept_slots(keeps, key_sequences_[i]), run.begin - gone, run.count);
        block.cached.insert(block.cached.end(), slots.begin(), slots.end());
      }
      if (block.tokens > 0) messages.leaving[rank].push_back(std::move(block));
    }
  return messages;
}

/// The keys that come, one rank after the other.
RingAttention::SequenceRuns RingAttention::runs_that_come(
    const std::vector<HaloSequence>& sequences, const parallel::Halo& plan) const {
  const int64_t head_dim = steps_.head_dim(), kv_heads = cache_.shape().num_kv_heads;
  std::vector<std::vector<kernels::KeyRun>> runs(sequences.size());
  int64_t before = 0;  // tokens
  for (int rank = 0; rank < size(); ++rank)
    for (size_t i = 0; i < sequences.size(); ++i) {
      const std::vector<IndexRun>& coming = plan.coming[rank][i];
      const int64_t tokens = count_tokens(coming);
      steps_.add_runs(runs[i], positions_of(coming, sequences[i].keys[rank]), {{0, tokens}},
                      before * kv_heads * head_dim, tokens * head_dim);
      before += tokens;
    }
  SequenceRuns all;
  for (const std::vector<kernels::KeyRun>& of_sequence : runs) {
    all.runs.insert(all.runs.end(), of_sequence.begin(), of_sequence.end());
    all.ends.push_back(all.runs.size());
  }
  return all;
}

void RingAttention::run_halo(int64_t layer, const Halo& halo, const TensorView& q,
                             const TensorView& out) {
  const Partial to{out, steps_.lse(lse_, q.rows())};
  const TensorView queries = steps_.queries_of_calls(q);
  steps_.exchange_halo(
      layer, halo.messages,
      [&](const kernels::StoredKeys& keys) {
        steps_.attend(layer, visits_[at(cache_.keeps(layer))][0], queries, keys, to);
      },
      [&](const kernels::StoredKeys& keys) {
        steps_.attend_more(layer, halo.call, queries, keys, to);
      });
  steps_.add_sinks(layer, to);
}

}  // namespace pecia::context
