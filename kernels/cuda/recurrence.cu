// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/recurrence_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

Matrix<const float> matrix_or_none(const TensorView& view) {
  return view ? matrix<const float>(view) : Matrix<const float>{};
}

template <int Keys, bool Vectors>
void recur(const RecurrenceArgs& args, const StateRows* items, device::Stream& stream) {
  const Recurrent there{.q = matrix_or_none(args.q),
                        .k = matrix<const float>(args.k),
                        .v = matrix_or_none(args.v),
                        .decay = matrix<const float>(args.decay),
                        .strength = matrix<const float>(args.strength),
                        .skip = static_cast<const float*>(args.skip.data()),
                        .states = matrix<float>(args.states),
                        .out = args.out ? matrix<float>(args.out) : Matrix<float>{},
                        .heads = args.heads(),
                        .key_heads = args.key_heads(),
                        .key_dim = args.key_dim(),
                        .value_dim = args.value_dim()};
  const int64_t slices = (args.value_dim() + recurrence_columns - 1) / recurrence_columns;
  launch_early(stream,
               {.x = static_cast<int64_t>(args.items.size()) * args.heads() * slices,
                .threads = recurrence_threads,
                .shared_bytes = 2 * sizeof(RecurrenceChunk<Keys>)},
               args.corrects ? recurrence_kernel<true, Keys, Vectors>
                             : recurrence_kernel<false, Keys, Vectors>,
               there, items);
}

template <int Keys>
void recur_with(const RecurrenceArgs& args, const StateRows* items, device::Stream& stream) {
  if (args.value_dim() % columns_of_lane == 0 && aligned_to<columns_of_lane>(args.states))
    recur<Keys, true>(args, items, stream);
  else
    recur<Keys, false>(args, items, stream);
}

}  // namespace

void recurrence(const RecurrenceArgs& args, Context& context, device::Stream& stream) {
  constexpr int few = 8, most = 16;  // elements of a column in a lane
  if (args.key_dim() > most * lanes_of_column)
    fail<Unsupported>(
        "a recurrence with keys of {} elements on a GPU, whose kernels have up to {}: run it with "
        "backend: cpu",
        args.key_dim(), most * lanes_of_column);
  const StateRows* const items = context.staging.send_array(args.items, stream);
  if (args.key_dim() <= few * lanes_of_column)
    recur_with<few>(args, items, stream);
  else
    recur_with<most>(args, items, stream);
}

}  // namespace pecia::kernels::cuda
