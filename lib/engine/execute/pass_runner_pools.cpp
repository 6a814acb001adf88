// SPDX-License-Identifier: Apache-2.0
/// Sums of the final normed hidden states of rows asked about.

#include <algorithm>

#include "lib/engine/execute/pass_runner.hpp"

namespace pecia::execute {

/// Sums this rank's rows of each pool, tile by tile. The host adds them up; on a GPU they are copied to
/// it, 4 bytes for each number, which takes a small part of the time that computed them.
std::vector<schedule::PooledSum> PassRunner::pool(const Asked& asked) {
  constexpr int64_t tile_rows = 512;
  std::vector<schedule::PooledSum> sums;
  for (int64_t begin = 0; begin < std::ssize(asked.rows); begin += tile_rows) {
    const int64_t count = std::min(tile_rows, std::ssize(asked.rows) - begin);
    const model::Model::Outputs outputs =
        model_.own_outputs(std::span(asked.rows).subspan(begin, count));
    if (outputs.which.empty()) continue;
    const report::ScopedSpan span(compute_.recorder, "pool", report::Kind::compute);
    const int64_t width = outputs.hidden.row_elements();
    host_rows_.resize(outputs.which.size() * width);
    compute_.device.copy(host_rows_.data(), outputs.hidden.data(),
                         std::ssize(host_rows_) * size_of(DType::fp32), compute_.stream);
    compute_.stream.synchronize();
    const auto pool_of = [&](size_t row) { return asked.which[begin + outputs.which[row]]; };
    for (size_t first = 0, end = 0; first < outputs.which.size(); first = end) {
      for (end = first + 1; end < outputs.which.size() && pool_of(end) == pool_of(first);) ++end;
      if (sums.empty() || sums.back().pool != pool_of(first)) sums.push_back({pool_of(first), {}});
      sums.back().sum.add(std::span(host_rows_).subspan(first * width, (end - first) * width),
                          width);
    }
  }
  return sums;
}

}  // namespace pecia::execute
