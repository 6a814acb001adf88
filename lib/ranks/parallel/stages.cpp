// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/stages.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

StagePlace stage_place(int rank, int replica_ranks, int stages) {
  PECIA_CHECK(stages >= 1 && replica_ranks % stages == 0 && 0 <= rank && rank < replica_ranks,
              "rank {} of {} in {} stages", rank, replica_ranks, stages);
  const int ranks = replica_ranks / stages;
  return {stages, rank / ranks, ranks, rank % ranks};
}

std::optional<std::vector<RowRange>> balanced_stages(
    std::span<const double> costs, int stages, double first, double last,
    const std::function<bool(const RowRange& layers)>& may_be) {
  const auto layers = static_cast<int64_t>(costs.size());
  PECIA_CHECK(stages >= 1, "{} stages", stages);
  if (layers < stages) return {};
  std::vector<double> before(layers + 1);  // costs of all layers before this one
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);

  /// The best way to give the first layers, up to some layer, to the first stages.
  struct Cut {
    double most = 0, squares = 0;
    int64_t begin = -1;  // of the last of these stages; −1: there is no way
    bool operator<(const Cut& other) const {
      return std::pair(most, squares) < std::pair(other.most, other.squares);
    }
  };
  std::vector<std::vector<Cut>> best(stages, std::vector<Cut>(layers + 1));
  for (int stage = 0; stage < stages; ++stage)
    for (int64_t end = stage + 1; end <= layers; ++end) {
      if ((stage == stages - 1) != (end == layers)) continue;
      Cut& found = best[stage][end];
      for (int64_t begin = stage == 0 ? 0 : stage; begin < end && (stage > 0 || begin == 0);
           ++begin) {
        if (stage > 0 && best[stage - 1][begin].begin < 0) continue;
        if (may_be && !may_be({begin, end})) continue;
        double cost = before[end] - before[begin];
        if (stage == 0) cost += first;
        if (stage == stages - 1) cost += last;
        const Cut earlier = stage > 0 ? best[stage - 1][begin] : Cut{};
        const Cut cut{std::max(earlier.most, cost), earlier.squares + cost * cost, begin};
        if (found.begin < 0 || cut < found) found = cut;
      }
    }
  if (best[stages - 1][layers].begin < 0) return {};
  std::vector<RowRange> ranges(stages);
  int64_t end = layers;
  for (int stage = stages - 1; stage >= 0; --stage) {
    ranges[stage] = {best[stage][end].begin, end};
    end = ranges[stage].begin;
  }
  return ranges;
}

}  // namespace pecia::parallel
