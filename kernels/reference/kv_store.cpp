#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void kv_store(const KvStoreArgs& args) {
  const int64_t head_dim = args.x.size(2);
  for (int64_t t = 0; t < args.x.rows(); ++t)
    for (int64_t h = 0; h < args.x.size(1); ++h)
      for (int64_t i = 0; i < head_dim; ++i)
        store_from_float(args.cache.row(h), args.cache.dtype(), args.slots[t] * head_dim + i,
                         row_of(args.x, t)[h * head_dim + i]);
}

}  // namespace pecia::kernels::reference
