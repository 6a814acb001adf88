// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/api/gpu_traits.hpp"
#include "kernels/cuda/attention/attention_by_library.hpp"
#include "kernels/cuda/attention/attention_fma_kernel.cuh"
#include "kernels/cuda/attention/attention_latent.hpp"
#include "kernels/cuda/attention/attention_mma_kernel.cuh"
#include "kernels/cuda/attention/attention_plan.hpp"
#include "kernels/cuda/attention/attention_wgmma.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int64_t max_head_dim = 576, max_value_dim = 512;
constexpr int wide_warps = 4, narrow_warps = 4;

/// As that kernel copies keys.
bool aligned_keys(const AttentionArgs& args) {
  const int64_t chunk = 16 / static_cast<int64_t>(size_of(args.kv_dtype));
  return reinterpret_cast<uintptr_t>(args.keys.k) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.keys.v) % 16 == 0 &&
         std::ranges::all_of(args.runs, [&](const KeyRun& run) {
           return run.num_keys == 0 || (run.offset % chunk == 0 && run.head_stride % chunk == 0);
         });
}

/// The kernels of all GPUs.
enum class Kernels { fma, mma, latents };

/// Heads whose values are shorter than their keys, as expanded latents are.
bool has_short_values_by_mma(const AttentionArgs& args) {
  return (args.kv_dtype == DType::bf16 || args.kv_dtype == DType::fp16) && args.q.size(2) == 192 &&
         args.out.size(2) == 128;
}

Kernels kernels_of_aligned(const AttentionArgs& args) {
  const int64_t head_dim = args.q.size(2), value_dim = args.out.size(2);
  if (args.keys.values_in_keys() && has_latent_kernel(args.kv_dtype, head_dim, value_dim))
    return Kernels::latents;
  if (head_dim == value_dim ? gpu_attends_on_tensor_cores(args.kv_dtype, head_dim)
                            : has_short_values_by_mma(args))
    return Kernels::mma;
  return Kernels::fma;
}

/// The kernels round differently: a row must not go to another one for its neighbours' keys.
Kernels kernels_of(const AttentionArgs& args) {
  const Kernels kernels = kernels_of_aligned(args);
  if (kernels == Kernels::fma) return kernels;
  const bool aligned = aligned_keys(args);
  PECIA_CHECK(aligned || args.row_invariant == RowInvariant::no,
              "keys that begin at no multiple of 16 bytes, with row invariance");
  return aligned ? kernels : Kernels::fma;
}

/// Few rows leave tiles half empty. Like the library's, its rounding follows from the call's items.
bool suits_wgmma(const AttentionArgs& args, const FoundWgmmaAttention& wgmma) {
  if (wgmma.attend == nullptr || args.row_invariant == RowInvariant::yes || args.scale <= 0 ||
      !wgmma_attends(args.kv_dtype, args.q.size(2)) || args.out.size(2) != args.q.size(2) ||
      !aligned_keys(args) || reinterpret_cast<uintptr_t>(args.q.data()) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(args.out.data()) % 16 != 0)
    return false;
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  return std::ranges::any_of(args.items, [&](const AttentionItem& item) {
    return item.num_rows * group >= wgmma.least_rows;
  });
}

struct Launch {
  const AttentionParams& params;
  int64_t tile_rows, blocks_x;
  RowInvariant row_invariant;
  device::Stream& stream;
};

template <typename T, int HeadDim, int ValueDim, int WarpsM, int WarpsN>
void run_mma_of_shape(const Launch& with) {
  using Block = MmaBlock<T, HeadDim, WarpsM, WarpsN, ValueDim>;
  const int64_t heads = with.params.num_kv_heads;
  launch_early(with.stream,
               {.x = WarpsM == 1 ? with.blocks_x * heads : with.blocks_x,
                .y = WarpsM == 1 ? 1 : heads,
                .threads = Block::threads,
                .shared_bytes = Block::shared_bytes},
               attention_mma_kernel<T, HeadDim, WarpsM, WarpsN, ValueDim>, with.params);
}

template <typename T, int HeadDim, int ValueDim = HeadDim>
void run_mma(const Launch& with, int64_t wide_rows) {
  if (with.tile_rows == wide_rows)
    run_mma_of_shape<T, HeadDim, ValueDim, wide_warps, 1>(with);
  else if (with.row_invariant == RowInvariant::yes)
    run_mma_of_shape<T, HeadDim, ValueDim, 1, 1>(with);  // what each warp of a wide tile does
  else
    run_mma_of_shape<T, HeadDim, ValueDim, 1, narrow_warps>(with);
}

template <typename T>
void run_mma_of_width(const Launch& with, int64_t wide_rows) {
  if constexpr (!std::is_same_v<T, Fp8>) {
    if (with.params.head_dim == 80) return run_mma<T, 80>(with, wide_rows);
    if (with.params.head_dim == 192) return run_mma<T, 192, 128>(with, wide_rows);
  }
  switch (with.params.head_dim) {
    case 64:
      return run_mma<T, 64>(with, wide_rows);
    case 96:
      return run_mma<T, 96>(with, wide_rows);
    default:  // kernels_of took no other
      return run_mma<T, 128>(with, wide_rows);
  }
}

template <typename T>
void run_fma(const Launch& with) {
  const int64_t value_dim = with.params.value_dim;
  const Grid grid = {.x = with.blocks_x,
                     .y = with.params.num_kv_heads,
                     .threads = fma_warps * warp_size,
                     .shared_bytes = fma_shared_bytes(with.params.head_dim)};
  if (value_dim <= 2 * warp_size)
    launch(with.stream, grid, attention_fma_kernel<T, 2>, with.params);
  else if (value_dim <= 4 * warp_size)
    launch(with.stream, grid, attention_fma_kernel<T, 4>, with.params);
  else if (value_dim <= 8 * warp_size)
    launch(with.stream, grid, attention_fma_kernel<T, 8>, with.params);
  else
    launch(with.stream, grid, attention_fma_kernel<T, 16>, with.params);
}

void run(const Launch& with, DType dtype, bool on_tensor_cores, int64_t wide_rows) {
  with_kv_type(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, float>)
      run_fma<T>(with);
    else if (on_tensor_cores)
      run_mma_of_width<T>(with, wide_rows);
    else
      run_fma<T>(with);
  });
}

/// Counters for `count` partial tiles of KV heads (AttentionParams::arrived). Every kernel leaves
/// them at zero, so they are zeroed where there are new ones.
int32_t* arrival_counters(int64_t count, Context& context, device::Stream& stream) {
  const int64_t bytes = count * size_of(DType::int32);
  if (bytes > context.zeroed_arrivals) {
    context.arrivals.reserve(bytes);
    context.zeroed_arrivals = context.arrivals.bytes();
    context.device.zero(context.arrivals.data(), context.zeroed_arrivals, stream);
  }
  return context.arrivals.as<int32_t>();
}

OutType out_type_of(DType dtype) {
  return dtype == DType::bf16   ? OutType::bf16
         : dtype == DType::fp16 ? OutType::fp16
                                : OutType::fp32;
}

/// Row-invariant latents have one shape of blocks, which add in one order.
PlanLimits limits_of(const AttentionArgs& args, Kernels kernels, bool by_wgmma,
                     const device::DeviceInfo& device) {
  const int64_t multiprocessors = device.multiprocessors;
  if (kernels == Kernels::latents) {
    const bool wide =
        args.row_invariant == RowInvariant::no && has_room_for_wide_latents(device.shared_bytes);
    return {.wide_rows = wide ? wide_latent_rows : narrow_latent_rows,
            .narrow_rows = wide ? narrow_latent_rows : 0,
            .blocks_wanted = 2 * multiprocessors};
  }
  const bool by_mma = kernels == Kernels::mma;
  return {.wide_rows = by_wgmma ? wgmma_tile_rows
                       : by_mma ? 16 * wide_warps
                                : fma_tile_rows,
          .narrow_rows = by_mma ? 16 : 0,
          .blocks_wanted = 3 * multiprocessors};
}

/// `shared_bytes`: of the device; 0 if it has no limit.
void refuse_long_heads(const AttentionArgs& args, Kernels kernels, int64_t shared_bytes) {
  const int64_t head_dim = args.q.size(2), value_dim = args.out.size(2);
  if (head_dim > max_head_dim || value_dim > max_value_dim)
    fail<Unsupported>(
        "heads of {} elements with values of {}; the CUDA backend takes up to {} and {}", head_dim,
        value_dim, max_head_dim, max_value_dim);
  if (kernels == Kernels::fma && shared_bytes > 0 && fma_shared_bytes(head_dim) > shared_bytes)
    fail<Unsupported>(
        "heads of {} elements in {} need {} bytes of a block's shared memory, and this GPU has {}; "
        "latents of bf16 need less",
        head_dim, name_of(args.kv_dtype), fma_shared_bytes(head_dim), shared_bytes);
}

void attention_by_own_kernels(const AttentionArgs& args, bool lasts, Context& context,
                              device::Stream& stream) {
  const int64_t head_dim = args.q.size(2), value_dim = args.out.size(2);
  const Kernels kernels = kernels_of(args);
  refuse_long_heads(args, kernels, context.device.info().shared_bytes);
  const bool by_wgmma = suits_wgmma(args, context.wgmma);
  const PlanLimits limits = limits_of(args, kernels, by_wgmma, context.device.info());
  const auto call = context.attention_calls.plan(args, limits, lasts, stream);
  AttentionParams params = {.q = args.q.data(),
                            .query_positions = call->there.query_positions,
                            .runs = call->there.runs,
                            .keys = args.keys,
                            .query_tiles = nullptr,
                            .partial_tiles = nullptr,
                            .out = args.out.data(),
                            .lse = args.lse.as<float>(),
                            .partial_out = nullptr,
                            .partial_lse = nullptr,
                            .arrived = nullptr,
                            .num_heads = args.q.size(1),
                            .num_kv_heads = args.num_kv_heads,
                            .head_dim = head_dim,
                            .window = args.window,
                            .value_dim = value_dim,
                            .scale = args.scale,
                            .q_is_rounded = args.q.dtype() != DType::fp32,
                            .out_type = out_type_of(args.out.dtype())};
  const auto attend = [&](const AttentionOnDevice::List& list, const PlanRoom::List& room,
                          int64_t tile_rows) {
    const int64_t partial_rows = room.partials * args.num_kv_heads * tile_rows;
    const TensorView partials = context.partials.tensor(DType::fp32, {partial_rows, value_dim + 1});
    params.partial_out = partials.as<float>();
    params.partial_lse = params.partial_out + partial_rows * value_dim;
    params.query_tiles = list.query_tiles;
    params.partial_tiles = list.partial_tiles;
    params.arrived = arrival_counters(room.partial_tiles * args.num_kv_heads, context, stream);
    if (by_wgmma && tile_rows == limits.wide_rows)
      context.wgmma.attend(params, room.query_tiles, args.kv_dtype, stream);
    else if (kernels == Kernels::latents)
      attend_latents(params, tile_rows, room.query_tiles, args.kv_dtype, stream);
    else
      run({params, tile_rows, room.query_tiles, args.row_invariant, stream}, args.kv_dtype,
          kernels == Kernels::mma, limits.wide_rows);
  };
  attend(call->there.wide, call->room.wide, limits.wide_rows);
  attend(call->there.narrow, call->room.narrow, limits.narrow_rows);
}

}  // namespace

void attention(const AttentionArgs& args, Context& context, device::Stream& stream) {
  // The library's order follows from its rectangles.
  if (args.row_invariant == RowInvariant::yes)
    return attention_by_own_kernels(args, true, context, stream);
  const std::vector<AttentionItem> rest = attention_by_library(args, context, stream);
  if (rest.empty()) return;
  if (rest.size() == args.items.size())
    return attention_by_own_kernels(args, true, context, stream);
  AttentionArgs others = args;
  others.items = rest;
  attention_by_own_kernels(others, false, context, stream);
}

}  // namespace pecia::kernels::cuda
