// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long hosts take to get weights from a file system, by a model: each by itself, and with each
/// byte read once and broadcast (run::SpreadFiles).

#include <cstdint>

namespace pecia::bench {

struct LoadModel {
  double message_s, link_bytes_per_second;  ///< of each host
  double storage_bytes_per_second;          ///< of the file system, to all hosts together
};

/// Seconds until all hosts have all bytes.
struct LoadSeconds {
  double mapped = 0;  ///< each host reads them
  double trees = 0;   ///< spread, pieces one after the other, each by a binomial tree
  double least = 0;   ///< spread, every host's link busy from the beginning to the end
};

LoadSeconds load_seconds(int64_t hosts, int64_t bytes, int64_t piece_bytes, const LoadModel& model);

}  // namespace pecia::bench
