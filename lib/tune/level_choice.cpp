// SPDX-License-Identifier: Apache-2.0
#include "lib/tune/level_choice.hpp"

namespace pecia::tune {

std::vector<double> level_shares(const parallel::Levels& levels, parallel::Geometry geometry) {
  const parallel::LevelRule rule{geometry, 0};
  const int ranks = levels.ranks();
  const double own = 1.0 / ranks;           // all ranks' own parts: triangles
  const double pair = 2.0 / ranks / ranks;  // a part and one before it: a square
  std::vector<double> shares{own};
  for (int level = 2; level <= levels.count(); ++level) {
    double share = geometry == parallel::Geometry::nested ? own : 0;
    for (int query = 0; query < ranks; ++query)
      for (int key = 0; key < query; ++key)
        if (parallel::seen_at(levels, rule, level, query, key).rows) share += pair;
    shares.push_back(share);
  }
  return shares;
}

double attended(const std::vector<double>& shares, double drop) {
  double sum = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double kept = parallel::LevelRule{{}, drop}.kept(static_cast<int>(i) + 1);
    sum += shares[i] * kept * kept;
  }
  return sum;
}

const LevelChoice* find(const std::vector<LevelChoice>& choices, int levels) {
  for (const LevelChoice& choice : choices)
    if (choice.count() == levels) return &choice;
  return nullptr;
}

}  // namespace pecia::tune
