// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/schedule/spread.hpp"

#include <algorithm>

#include "apps/bench/schedule/plans.hpp"

namespace pecia::bench {

LoadSeconds load_seconds(int64_t hosts, int64_t bytes, int64_t piece_bytes,
                         const LoadModel& model) {
  const auto size = static_cast<double>(bytes);
  const double once = size / model.storage_bytes_per_second;
  const double link = size / model.link_bytes_per_second;
  const auto tree = [&](int64_t of_piece) {
    return tree_seconds(hosts, of_piece, model.message_s, model.link_bytes_per_second);
  };
  // Pieces are read ahead while earlier ones travel.
  const double trees =
      static_cast<double>(bytes / piece_bytes) * tree(piece_bytes) + tree(bytes % piece_bytes);
  return {.mapped = std::max(link, static_cast<double>(hosts) * once),
          .trees = std::max(once, trees),
          .least = std::max(once, link)};
}

}  // namespace pecia::bench
