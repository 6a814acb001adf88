// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/recurrence_chunks_kernel.cuh"
#include "kernels/cuda/recurrence_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int few_chunk_keys = 64, most_chunk_keys = 128;

Matrix<const float> matrix_or_none(const TensorView& view) {
  return view ? matrix<const float>(view) : Matrix<const float>{};
}

Recurrent on_device(const RecurrenceArgs& args) {
  return {.q = matrix_or_none(args.q),
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
}

template <int Keys, bool Vectors>
void recur(const RecurrenceArgs& args, const StateRows* items, device::Stream& stream) {
  const int64_t slices = (args.value_dim() + recurrence_columns - 1) / recurrence_columns;
  launch_early(stream,
               {.x = static_cast<int64_t>(args.items.size()) * args.heads() * slices,
                .threads = recurrence_threads,
                .shared_bytes = 2 * sizeof(RecurrenceChunk<Keys>)},
               args.corrects ? recurrence_kernel<true, Keys, Vectors>
                             : recurrence_kernel<false, Keys, Vectors>,
               on_device(args), items);
}

template <int Keys>
void recur_with(const RecurrenceArgs& args, const StateRows* items, device::Stream& stream) {
  if (args.value_dim() % columns_of_lane == 0 && aligned_to<columns_of_lane>(args.states))
    recur<Keys, true>(args, items, stream);
  else
    recur<Keys, false>(args, items, stream);
}

template <bool Corrects, int KeyDim, bool Once>
void recur_in_chunks(const RecurrenceArgs& args, Context& context, device::Stream& stream) {
  constexpr int64_t parts_bytes = int64_t{64} << 20;  // of a band: most GPUs have them in a cache
  const int64_t heads = args.heads();
  const ChunkPlan plan = plan_chunks(
      args.items, std::max<int64_t>(1, parts_bytes / (heads * int64_t{sizeof(ChunkParts)})));
  int64_t most = 0;
  for (const ChunkBand& band : plan.bands) most = std::max(most, band.num_chunks);
  context.chunk_parts.reserve(most * heads * int64_t{sizeof(ChunkParts)});
  auto* const parts = context.chunk_parts.as<ChunkParts>();
  Staging& staging = context.staging;
  const std::span<const ChunkRows> chunks(plan.chunks);
  const std::span<const ChunkSpan> spans(plan.spans);
  staging.begin(Staging::bytes_of(chunks) + Staging::bytes_of(spans), stream);
  const ChunkRows* const chunks_there = staging.add(chunks);
  const ChunkSpan* const spans_there = staging.add(spans);
  staging.send(stream);
  const int64_t slices = (args.value_dim() + chunk_columns - 1) / chunk_columns;
  for (const ChunkBand& band : plan.bands) {
    launch(stream,
           {.x = band.num_chunks * args.key_heads(),
            .threads = chunk_threads,
            .shared_bytes = sizeof(PartsMemory<KeyDim>)},
           chunk_parts_kernel<Corrects, KeyDim, Once>, on_device(args),
           chunks_there + band.first_chunk, parts);
    launch(stream,
           {.x = band.num_spans * heads * slices,
            .threads = chunk_threads,
            .shared_bytes = sizeof(ChunkMemory<KeyDim>)},
           recurrence_chunks_kernel<Corrects, KeyDim, Once>, on_device(args),
           spans_there + band.first_span, chunks_there, band.first_chunk, parts);
  }
}

template <bool Corrects, int KeyDim>
void recur_rounding(const RecurrenceArgs& args, Context& context, device::Stream& stream) {
  if (args.products == DType::fp32)
    recur_in_chunks<Corrects, KeyDim, false>(args, context, stream);
  else
    recur_in_chunks<Corrects, KeyDim, true>(args, context, stream);
}

template <int KeyDim>
void recur_chunked(const RecurrenceArgs& args, Context& context, device::Stream& stream) {
  if (args.corrects)
    recur_rounding<true, KeyDim>(args, context, stream);
  else
    recur_rounding<false, KeyDim>(args, context, stream);
}

bool takes_chunks(const RecurrenceArgs& args, const device::Device& device) {
  const auto needed =
      static_cast<int64_t>(args.key_dim() <= few_chunk_keys ? sizeof(ChunkMemory<few_chunk_keys>)
                                                            : sizeof(ChunkMemory<most_chunk_keys>));
  const int64_t has = device.info().shared_bytes;  // 0: any
  return gpu_takes_chunks(args) && (has == 0 || has >= needed) && aligned_to<4>(args.k) &&
         aligned_to<4>(args.q);
}

}  // namespace

void recurrence(const RecurrenceArgs& args, Context& context, device::Stream& stream) {
  if (takes_chunks(args, context.device)) {
    if (args.key_dim() <= few_chunk_keys)
      return recur_chunked<few_chunk_keys>(args, context, stream);
    return recur_chunked<most_chunk_keys>(args, context, stream);
  }
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
