// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What attention by levels computes and sends at one rank, and what dense attention would compute
/// and send there. All of it follows from numbers of tokens.

#include <array>
#include <vector>

#include "lib/base/core/archive.hpp"
#include "lib/model/attention/kv_cache.hpp"
#include "lib/model/attention/level_layout.hpp"
#include "lib/model/attention/token_shares.hpp"
#include "lib/ranks/comm/place.hpp"

namespace pecia::attention {

/// Bytes by the widest link that they cross.
using LinkBytes = std::array<double, comm::num_link_levels>;

/// One level at one rank. A pair is a query row of one query head, and a key that it attends.
struct LevelCount {
  double pairs = 0;
  int64_t token_bytes = 0, output_bytes = 0;  ///< sent
  int64_t kept = 0;                           ///< of the rank's own tokens

  template <typename A>
  void visit(A& archive) {
    archive(pairs), archive(token_bytes), archive(output_bytes), archive(kept);
  }
};

/// One layer of a pass at one rank.
struct LayerCount {
  std::vector<LevelCount> levels;  ///< [level − 1]
  int64_t tokens = 0;              ///< the rank's own, cached ones and rows
  LinkBytes by_link{};             ///< sent for levels
  double dense_pairs = 0;
  LinkBytes dense_by_link{};
};

/// What a count follows from besides the layout.
struct CountedShape {
  int64_t num_heads = 0;  ///< query heads of the rank
  KvShape kv;
  /// From the rank to each rank of the ring, or of those that share its heads.
  std::vector<comm::LinkLevel> links;
  DType wire = DType::fp32;  ///< type in which queries and outputs travel
};

/// Counts a layer at a rank that has the parts `here`, for a layout that lay_out gave it. Where these
/// are all parts, its dense attention sends nothing either. The attention of a rank's kept
/// tokens to each other at higher levels, which Geometry::nested adds, is not in it.
LayerCount count_layer(const parallel::Levels& levels, const parallel::LevelRule& rule,
                       const std::vector<parallel::LevelSequence>& sequences,
                       const LevelLayout& layout, const parallel::PartsHere& here,
                       const CountedShape& shape);

/// What weighing tokens costs a rank of a ring.
struct WeighCost {
  int64_t sent_bytes = 0;  ///< the same to each other rank
  double pairs = 0;        ///< of a sample and a key; each is one product, and no value is read
};

/// Sums over layers and passes.
struct SparseTotals {
  /// Tokens of a layer, over all passes; none if the layer is not attended by levels.
  struct Layer {
    int64_t tokens = 0;
    std::vector<int64_t> kept;  ///< [level − 1]

    template <typename A>
    void visit(A& archive) {
      archive(tokens), archive(kept);
    }
  };
  std::vector<int32_t> segment_ranks;  ///< [level − 1]: ranks of the level's largest segment
  std::vector<LevelCount> levels;      ///< [level − 1]
  std::vector<Layer> layers;
  int64_t passes = 0, rows = 0;  ///< of the whole ring, and the same at each of its ranks
  int64_t importance_bytes = 0;
  double importance_pairs = 0;
  TokenShares shares;   ///< where these are counted (parallel::SparseSetting::counts_shares)
  LinkBytes by_link{};  ///< sent for levels and importance
  double dense_pairs = 0;
  LinkBytes dense_by_link{};

  /// Begins with the levels of a ring, and layers without tokens.
  static SparseTotals of(const parallel::Levels& levels, int64_t layers);

  void add_pass(const std::vector<parallel::LevelSequence>& sequences);
  void add(int64_t layer, const LayerCount& count);
  void add(const WeighCost& cost, int rank, const std::vector<comm::LinkLevel>& links);
  /// Adds what a rank sent to those that have other heads of the same tokens.
  void add_importance(const LinkBytes& sent);
  /// Adds another rank's totals. Passes and rows are added, too.
  SparseTotals& operator+=(const SparseTotals& other);

  double pairs() const;
  double sent_bytes() const;  ///< importance included
  double dense_bytes() const;

  template <typename A>
  void visit(A& archive) {
    archive(segment_ranks), archive(passes), archive(rows), archive(importance_bytes),
        archive(importance_pairs), archive(by_link), archive(dense_pairs), archive(dense_by_link);
    visit_all(archive, levels), visit_all(archive, layers);
    shares.visit(archive);
  }
};

}  // namespace pecia::attention
