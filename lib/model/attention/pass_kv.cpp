// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/pass_kv.hpp"

#include <algorithm>

#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

using parallel::PassSequence;
using parallel::SequenceId;

void PassKv::begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) {
  rows_ = &rows;
  const PassCalls calls(steps_, rows);
  visits_.assign(steps_.cache().kinds().size(), {});
  for (const int index : steps_.kinds(windows)) {
    const LayerKind& kind = steps_.kind(index);
    if (rows.size() > 1) plan_messages(index);
    for (int step = 0; step < rows.size(); ++step) {
      const bool recent = kind.retention == Retention::recent;
      const bool in_cache = step == 0 && (recent || !rows.places_any());
      visits_[index].push_back(
          calls.call(rows.index(), in_cache ? calls.in_cache(kind)
                                            : calls.in_message(kind, rows.visiting(step))));
    }
  }
}

/// A message has the keys that layers keep. Of sequences that the pass places, which are in no pass
/// of layers that keep recent ones, the rows follow what is cached.
void PassKv::plan_messages(int kind) {
  const Retention retention = steps_.kind(kind).retention;
  const int index = rows_->index();
  std::vector<MessageBlock> blocks;
  for (const SequenceId sequence : rows_->key_sequences()) {
    const auto* travelling = rows_->placed(sequence);
    const int64_t tokens = rows_->kept(retention, sequence, index);
    const int64_t cached = travelling != nullptr ? travelling->at(index).cached : tokens;
    blocks.push_back({part_of(rows_->ledger().kept_slots(retention, sequence), 0, cached), tokens});
  }
  int64_t row = 0;
  for (const PassSequence& sequence : rows_->sequences()) {
    const int64_t rows = parallel::num_rows({sequence}, rows_->team(), index);
    if (rows_->placed(sequence.sequence) != nullptr) {
      MessageBlock& block = blocks[rows_->key_index(sequence.sequence)];
      block.first_row = row, block.rows = rows;
    }
    row += rows;
  }
  std::vector<int64_t> tokens;
  std::vector<std::vector<KeptTokens>> kept;
  for (int step = 0; step < rows_->size(); ++step) {
    tokens.push_back(rows_->kept(retention, rows_->visiting(step)));
    if (rows_->places_any()) kept.push_back(kept_of(rows_->visiting(step)));
  }
  steps_.messages().plan(kind, std::move(blocks), std::move(tokens), std::move(kept));
}

/// What this rank keeps of the message of `source`. The map has the pass's tokens already: what is
/// kept of a sequence is the end of what this instance holds.
std::vector<KeptTokens> PassKv::kept_of(int source) const {
  const KvLedger& ledger = rows_->ledger();
  std::vector<KeptTokens> kept;
  int64_t block_begin = 0;
  for (const SequenceId sequence : rows_->key_sequences()) {
    const int64_t block_tokens = rows_->held(sequence, source);
    if (const auto* travelling = rows_->placed(sequence)) {
      const auto runs =
          kept_runs(*rows_->placement(sequence), rows_->team(), *travelling, ledger.instance());
      int64_t next = travelling->at(rows_->index()).cached;  // slots used so far
      for (const parallel::KeptRun& run : runs) {
        if (run.source == source)
          kept.push_back({block_begin, block_tokens, run.run.begin,
                          part_of(ledger.slots(sequence), next, run.run.count)});
        next += run.run.count;
      }
    }
    block_begin += block_tokens;
  }
  return kept;
}

PathTraits PassKv::traits() const {
  return {rows_->stores_all(), rows_->size() == 1 && !steps_.has_sinks(), steps_.query_type()};
}

int64_t PassKv::bytes_without_window(const PassRows& rows, const KvShape& shape) const {
  int64_t tokens = 0;
  for (int step = 0; step + 1 < rows.size(); ++step)
    tokens += rows.kept(Retention::all, rows.visiting(step));
  return tokens * shape.layer_bytes_per_token();
}

void PassKv::run(int64_t layer, const LayerRows& x, const Partial& to) {
  const TensorView queries = rows_->size() > 1 ? steps_.queries_of_calls(x.q) : x.q;
  const auto& visits = visits_[steps_.cache().kind(layer)];
  steps_.messages().pass_round(layer, x.k, x.v, [&](int step, const kernels::StoredKeys& keys) {
    if (step == 0)
      steps_.attend(layer, visits[0], queries, keys, to);
    else
      steps_.attend_more(layer, visits[step], queries, keys, to);
  });
}

}  // namespace pecia::attention
