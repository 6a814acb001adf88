// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {

void rope_tables(const RopeTablesArgs& args, const device::Stream& stream) {
  constexpr int64_t cost = 32;  // of a cosine and a sine, in elements that are touched once
  const int64_t pairs = args.cos.size(1);
  const auto rows = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const auto position = static_cast<float>(args.positions[t]);
      const float* const frequencies = args.frequencies.data() + args.sets[t] * pairs;
      const float factor = args.factors[args.sets[t]];
      auto* const cos = static_cast<float*>(args.cos.row(t));
      auto* const sin = static_cast<float*>(args.sin.row(t));
      for (int64_t i = 0; i < pairs; ++i) {
        const float angle = position * frequencies[i];
        cos[i] = static_cast<float>(std::cos(double{angle})) * factor;
        sin[i] = static_cast<float>(std::sin(double{angle})) * factor;
      }
    }
  };
  for_each_range(stream, args.cos.rows(), rows_per_task(cost * pairs), rows);
}

}  // namespace pecia::kernels::cpu
