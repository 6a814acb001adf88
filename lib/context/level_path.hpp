// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What Levels and HeadLevels have in common: rows attend their own part of the tokens while tokens
/// of other parts travel, and then what higher levels give them. Layers with a window go another
/// way, since levels do not know the positions of keys. Their tokens are weighed all the same.
/// Source: CSPS, "levels".

#include "lib/context/attention_path.hpp"
#include "lib/context/level_attention.hpp"

namespace pecia::context {

class LevelPath : public AttentionPath {
 public:
  /// Does what `x.q` needs of the sequences that begin_pass cut into parts.
  void run(int64_t layer, const LayerRows& x, const Partial& to) override;
  PathTraits traits() const override { return {}; }

  /// Weighs the tokens for the next layer. Call it after each layer of the pass, also after those
  /// that went another way. `attended` has the complete results. Collective over the ranks by whose
  /// places sequences are cut.
  void weigh(int64_t layer, const TensorView& q, const Partial& attended) {
    levels_.weigh(layer, steps_.window(layer), q, attended);
  }
  /// What all passes have done so far.
  const SparseTotals& totals() const { return levels_.totals(); }

 protected:
  /// The arguments have the same meaning as for LevelAttention.
  LevelPath(const Compute& compute, KvCache& cache, AttentionSteps& steps, const LevelRanks& ranks,
            int rank, const parallel::SparseSetting& setting)
      : steps_(steps), levels_(compute, cache, steps, ranks, rank, setting) {}

  /// Begins a pass of these sequences, of which the runs of keys are not known yet. `own` attends
  /// each part here to itself.
  void begin(const PassRows& rows, std::vector<LevelAttention::Sequence> sequences,
             AttentionCall own);
  /// Neighbours of a border between parts always see each other.
  static void keep_ends(parallel::PartTokens& part);

  AttentionSteps& steps_;
  LevelAttention levels_;

 private:
  AttentionCall own_;
};

}  // namespace pecia::context
