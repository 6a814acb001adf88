// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Teams and passes drawn from a seed, for tests of what holds whatever teams did before. Every
/// rank that draws the same from the same seed gets the same.

#include <random>

#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::test {

class RandomTeams {
 public:
  RandomTeams(int instances, uint64_t seed) : instances_(instances), random_(seed) {}

  /// The next iteration: chunks and single tokens of some of the sequences, on teams as from
  /// `place`.
  std::vector<parallel::TeamPass> draw(const parallel::KvMap& map,
                                       const std::vector<parallel::SequenceId>& sequences);

  /// Teams for all these rows: each has the holders of the keys that its rows see and perhaps some
  /// other instances, in any order, with any ring. Owners of single tokens are drawn, too.
  std::vector<parallel::TeamPass> place(const parallel::KvMap& map,
                                        std::vector<parallel::PassSequence> rows) {
    return place(map, std::move(rows), Apart::together);
  }

  /// Says for some of the sequences where their tokens are to stay, where keys travel: all of an
  /// iteration's rows are given, and no sequence has children.
  void keep_some(const parallel::KvMap& map, std::vector<parallel::TeamPass>& teams);

  /// A number in [low, high].
  int64_t number(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  /// What becomes of rows whose holders were drawn into several teams.
  enum class Apart { left_out, together };
  std::vector<parallel::TeamPass> place(const parallel::KvMap& map,
                                        std::vector<parallel::PassSequence> rows, Apart apart);

  int instances_;
  std::mt19937_64 random_;
};

}  // namespace pecia::test
