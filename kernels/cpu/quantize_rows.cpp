// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/code_rows.hpp"
#include "kernels/cpu/products/gemm.hpp"
#include "kernels/cpu/shared/parallel.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

struct Sums {
  float difference, original;
};

Sums square_sums(const float* numbers, const float* stored, int64_t count) {
  double difference = 0, original = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double error = double{stored[i]} - numbers[i];
    difference += error * error;
    original += double{numbers[i]} * numbers[i];
  }
  return {static_cast<float>(difference), static_cast<float>(original)};
}

}  // namespace

void quantize_rows(const QuantizeRowsArgs& args, const device::Stream& stream,
                   Workspace& workspace) {
  const int64_t columns = args.x.size(1);
  const DType type = args.codes.dtype();
  if (type == DType::fp8) fail<Unsupported>("the CPU backend has no fp8; use bf16 or int8");
  const int64_t room = (columns + int4_group - 1) / int4_group * int4_group;
  workspace.reserve_threads(stream.num_threads(), 2 * Carver::bytes_of<float>(room));
  for_each_task(stream, args.x.rows(), [&](int64_t t, const Worker& worker) {
    Carver scratch = workspace.of_thread(worker.thread);
    auto* const numbers = scratch.take<float>(room);
    auto* const stored = scratch.take<float>(room);
    float* const scales = args.scales.as<float>() + t * row_scales(type, columns);
    widen_rows(args.x.row(t), args.x.dtype(), columns, 1, columns, numbers, columns);
    encode_row(numbers, columns, type, args.codes.row(t), scales);
    if (!args.square_sums) return;
    decode_row(args.codes.row(t), type, scales, 0, columns, stored);
    const Sums sums = square_sums(numbers, stored, columns);
    args.square_sums.as<float>()[2 * t] = sums.difference;
    args.square_sums.as<float>()[2 * t + 1] = sums.original;
  });
}

}  // namespace pecia::kernels::cpu
