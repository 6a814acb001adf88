// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/op_sizes.hpp"

namespace pecia::measure {
namespace {

constexpr int64_t kib = 1 << 10, mib = 1 << 20;

}  // namespace

OpSizes cpu_op_sizes(int64_t cache_bytes, DType keys) {
  return {.cache_bytes = cache_bytes,
          .rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
          .depths = {64, 128, 256, 512, 1024, 2048},
          .widths = {32, 64, 128, 256, 512, 1024, 2048},
          .usual_rows = 256,
          .usual_depth = 1024,
          .usual_width = 1024,
          .attention = {8, 2, 64, keys},
          .attention_rows = {1, 4, 16, 64, 256, 1024},
          .attention_depths = {32, 128, 512, 2048, 8192},
          .stream = {4, 4, 64, keys},
          .stream_bytes = {64 * kib, 512 * kib, 4 * mib, 12 * mib},
          .weights_bytes = {128 * kib, 512 * kib, 2 * mib, 8 * mib},
          .copies_bytes = {48 * kib, 384 * kib, 3 * mib, 24 * mib, 96 * mib}};
}

OpSizes gpu_op_sizes() {
  return {.cache_bytes = 64 * mib,
          .rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192},
          .depths = {512, 1024, 2048, 4096, 8192, 16384},
          .widths = {256, 512, 1024, 2048, 4096, 8192, 16384},
          .usual_rows = 4096,
          .usual_depth = 4096,
          .usual_width = 4096,
          .attention = {32, 8, 128, DType::bf16},
          .attention_rows = {1, 16, 64, 256, 1024, 4096},
          .attention_depths = {256, 1024, 4096, 16384},
          .stream = {32, 8, 128, DType::bf16},
          .stream_bytes = {1 * mib, 8 * mib, 32 * mib, 128 * mib},
          .weights_bytes = {2 * mib, 8 * mib, 32 * mib, 128 * mib},
          .copies_bytes = {48 * kib, 384 * kib, 3 * mib, 24 * mib, 96 * mib, 192 * mib}};
}

}  // namespace pecia::measure
