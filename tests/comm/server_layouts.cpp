// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/server_layouts.hpp"

#include <array>

namespace pecia::test {
namespace {

template <typename F>
std::vector<int> label_each(int num_ranks, F label) {
  std::vector<int> labels;
  for (int rank = 0; rank < num_ranks; ++rank) labels.push_back(label(rank));
  return labels;
}

std::vector<int> one_server(int num_ranks) {
  return std::vector(num_ranks, 3);
}
std::vector<int> one_each(int num_ranks) {
  return label_each(num_ranks, [](int rank) { return rank; });
}
std::vector<int> pairs(int num_ranks) {
  return label_each(num_ranks, [](int rank) { return rank / 2; });
}
std::vector<int> interleaved(int num_ranks) {
  return label_each(num_ranks, [](int rank) { return rank % 2; });
}
std::vector<int> unequal(int num_ranks) {
  constexpr std::array labels{7, 9, 9, 9, -4, 7, 9, -4};
  return label_each(num_ranks, [&](int rank) { return labels[rank % labels.size()]; });
}

}  // namespace

const std::vector<ServerLayout>& server_layouts() {
  static const std::vector<ServerLayout> layouts{{"OneServer", one_server},
                                                 {"OneEach", one_each},
                                                 {"Pairs", pairs},
                                                 {"Interleaved", interleaved},
                                                 {"Unequal", unequal}};
  return layouts;
}

std::vector<int64_t> ragged_counts(int num_ranks, int seed) {
  constexpr std::array<int64_t, 7> lengths{0, 5, 1, 2500, 1024, 33, 9001};
  std::vector<int64_t> counts;
  for (int rank = 0; rank < num_ranks; ++rank)
    counts.push_back(lengths[(rank * 3 + seed) % lengths.size()]);
  return counts;
}

}  // namespace pecia::test
