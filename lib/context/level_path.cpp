// SPDX-License-Identifier: Apache-2.0
#include "lib/context/level_path.hpp"

#include <algorithm>

#include "lib/context/pass_calls.hpp"

namespace pecia::context {

void LevelPath::begin(const PassRows& rows, std::vector<LevelAttention::Sequence> sequences,
                      AttentionCall own) {
  own_ = std::move(own);
  const PassCalls calls(steps_, rows);
  const SequenceRuns cached = calls.in_cache(Keeps::all);
  for (size_t i = 0; i < sequences.size(); ++i)
    for (const parallel::SequenceId member : rows.lineage(rows.sequences()[i].sequence)) {
      const auto runs = calls.of_sequence(member, cached);
      auto& all = sequences[i].tokens.runs;
      all.insert(all.end(), runs.begin(), runs.end());
    }
  levels_.begin_pass(steps_.ring(), std::move(sequences));
}

void LevelPath::keep_ends(parallel::PartTokens& part) {
  part.first = std::min(part.rows, LevelAttention::border);
  part.last = std::max(part.last, part.first);
}

void LevelPath::run(int64_t layer, const LayerRows& x, const Partial& to) {
  levels_.start(layer, x.q);
  steps_.attend(layer, own_, x.q, steps_.cached(layer), to);
  levels_.finish(layer, x.q, to);
}

}  // namespace pecia::context
