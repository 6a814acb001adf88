#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/parallel.hpp"

namespace pecia::kernels::cpu {

void embedding(const EmbeddingArgs& args, const device::Stream& stream) {
  const int64_t hidden = args.out.size(1);
  for_each_range(stream, args.out.rows(), rows_per_task(hidden), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      widen_rows(args.table.row(args.tokens[t]), args.table.dtype(), hidden, 1, hidden,
                 static_cast<float*>(args.out.row(t)), hidden);
  });
}

}  // namespace pecia::kernels::cpu
