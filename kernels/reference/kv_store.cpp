// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"
#include "lib/base/core/fp8_vector.hpp"

namespace pecia::kernels::reference {
namespace {

float scale_of(const float* x, int64_t count) {
  float greatest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(x[i])) return fp8_scale(x[i]);
    greatest = std::max(greatest, std::fabs(x[i]));
  }
  return fp8_scale(greatest);
}

}  // namespace

void kv_store(const KvStoreArgs& args) {
  const int64_t head_dim = args.x.size(2);
  for (int64_t t = 0; t < args.x.rows(); ++t)
    for (int64_t h = 0; h < args.x.size(1); ++h) {
      const float* x = row_of(args.x, t) + h * head_dim;
      float scale = 1;
      if (args.cache.dtype() == DType::fp8)
        scale = row_of(args.scales, h)[args.slots[t]] = scale_of(x, head_dim);
      for (int64_t i = 0; i < head_dim; ++i)
        store_from_float(args.cache.row(h), args.cache.dtype(), args.slots[t] * head_dim + i,
                         x[i] / scale);
    }
}

}  // namespace pecia::kernels::reference
