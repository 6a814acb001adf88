// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/attention_by_library.hpp"
#include "kernels/cuda/attention_combine_kernel.cuh"
#include "kernels/cuda/attention_fma_kernel.cuh"
#include "kernels/cuda/attention_mma_kernel.cuh"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int64_t max_head_dim = 256;
constexpr int wide_warps = 4, narrow_warps = 4;

bool has_tensor_core_kernel(const AttentionArgs& args) {
  const int64_t head_dim = args.q.size(2);
  return args.kv_dtype != DType::fp32 &&
         (head_dim == 64 || (head_dim == 80 && args.kv_dtype != DType::fp8) || head_dim == 96 ||
          head_dim == 128);
}

/// As that kernel copies keys.
bool aligned_keys(const AttentionArgs& args) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return std::ranges::all_of(args.runs, [&](const KeyRun& run) {
    return run.num_keys == 0 ||
           (aligned(run.k) && aligned(run.v) && run.head_stride * size_of(args.kv_dtype) % 16 == 0);
  });
}

/// The two kernels round differently: a row must not go to the other one for its neighbours' keys.
bool suits_tensor_cores(const AttentionArgs& args) {
  if (!has_tensor_core_kernel(args)) return false;
  const bool aligned = aligned_keys(args);
  PECIA_CHECK(aligned || args.row_invariant == RowInvariant::no,
              "keys that begin at no multiple of 16 bytes, with row invariance");
  return aligned;
}

struct Launch {
  const AttentionParams& params;
  const TileList& list;
  RowInvariant row_invariant;
  device::Stream& stream;
  int64_t blocks_x() const { return static_cast<int64_t>(list.query_tiles.size()); }
};

template <typename T, int HeadDim, int WarpsM, int WarpsN>
void run_mma(const Launch& with) {
  using Block = MmaBlock<T, HeadDim, WarpsM, WarpsN>;
  launch(with.stream,
         {.x = with.blocks_x(),
          .y = with.params.num_kv_heads,
          .threads = Block::threads,
          .shared_bytes = Block::shared_bytes},
         attention_mma_kernel<T, HeadDim, WarpsM, WarpsN>, with.params);
}

template <typename T, int HeadDim>
void run_mma(const Launch& with, int64_t wide_rows) {
  if (with.list.tile_rows == wide_rows)
    run_mma<T, HeadDim, wide_warps, 1>(with);
  else if (with.row_invariant == RowInvariant::yes)
    run_mma<T, HeadDim, 1, 1>(with);  // what each warp of a wide tile does
  else
    run_mma<T, HeadDim, 1, narrow_warps>(with);
}

template <typename T>
void run_mma_of_width(const Launch& with, int64_t wide_rows) {
  if constexpr (!std::is_same_v<T, Fp8>)
    if (with.params.head_dim == 80) return run_mma<T, 80>(with, wide_rows);
  switch (with.params.head_dim) {
    case 64:
      return run_mma<T, 64>(with, wide_rows);
    case 96:
      return run_mma<T, 96>(with, wide_rows);
    default:  // suits_tensor_cores took no other
      return run_mma<T, 128>(with, wide_rows);
  }
}

template <typename T>
void run_fma(const Launch& with) {
  const int64_t head_dim = with.params.head_dim;
  const Grid grid = {.x = with.blocks_x(),
                     .y = with.params.num_kv_heads,
                     .threads = fma_warps * warp_size,
                     .shared_bytes = fma_shared_bytes(head_dim)};
  if (head_dim <= 2 * warp_size)
    launch(with.stream, grid, attention_fma_kernel<T, 2>, with.params);
  else if (head_dim <= 4 * warp_size)
    launch(with.stream, grid, attention_fma_kernel<T, 4>, with.params);
  else
    launch(with.stream, grid, attention_fma_kernel<T, 8>, with.params);
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

/// The tiles, positions and runs of the call in the staging memory, as the kernels take them.
struct OnDevice {
  const int64_t* query_positions;
  const DeviceRun* runs;
  const KeyTile* key_tiles;
  const QueryTile* query_tiles[2];
  const PartialTile* partial_tiles[2];
};

int64_t bytes_between(const void* from, const void* to) {
  return reinterpret_cast<intptr_t>(to) - reinterpret_cast<intptr_t>(from);
}

RunShift shift_between(const KeyRun& from, const KeyRun& to) {
  return {bytes_between(from.k, to.k), bytes_between(from.v, to.v),
          bytes_between(from.k_scales, to.k_scales), bytes_between(from.v_scales, to.v_scales)};
}

OnDevice upload(const AttentionArgs& args, const AttentionPlan& plan, Staging& staging,
                device::Stream& stream) {
  int64_t bytes = Staging::bytes_of(args.query_positions) +
                  Staging::bytes_of<DeviceRun>(static_cast<int64_t>(args.runs.size())) +
                  Staging::bytes_of(std::span(plan.key_tiles));
  for (const KeyRun& run : args.runs) bytes += Staging::bytes_of<int64_t>(run.num_keys);
  for (const TileList* list : {&plan.wide, &plan.narrow})
    bytes += Staging::bytes_of(std::span(list->query_tiles)) +
             Staging::bytes_of(std::span(list->partial_tiles));

  staging.begin(bytes, stream);
  std::vector<DeviceRun> runs;
  for (const KeyRun& run : args.runs)
    runs.push_back({run.k, run.v, run.head_stride, run.num_keys,
                    staging.add(std::span(run.positions, static_cast<size_t>(run.num_keys))),
                    run.k_scales, run.v_scales});
  OnDevice there;
  there.runs = staging.add(std::span<const DeviceRun>(runs));
  there.query_positions = staging.add(args.query_positions);
  there.key_tiles = staging.add(std::span(plan.key_tiles));
  int index = 0;
  for (const TileList* list : {&plan.wide, &plan.narrow}) {
    there.query_tiles[index] = staging.add(std::span(list->query_tiles));
    there.partial_tiles[index++] = staging.add(std::span(list->partial_tiles));
  }
  staging.send(stream);
  return there;
}

}  // namespace

/// A call as the kernels take it. In a step the layers' calls differ in where the keys are, all by
/// the same distance, and one plan serves them.
struct PlannedAttention {
  AttentionArgs args;
  PlanLimits limits;  ///< of the kernels that it is for
  std::vector<KeyRun> runs;
  AttentionPlan plan;
  OnDevice there;

  bool serves(const AttentionArgs& call, const PlanLimits& wanted) const {
    const auto same_span = [](const auto& a, const auto& b) {
      return a.data() == b.data() && a.size() == b.size();
    };
    if (wanted != limits || call.row_invariant != args.row_invariant ||
        !same_span(call.items, args.items) ||
        !same_span(call.query_positions, args.query_positions) ||
        call.q.size(1) != args.q.size(1) || call.num_kv_heads != args.num_kv_heads ||
        call.q.size(2) != args.q.size(2) || call.kv_dtype != args.kv_dtype ||
        call.window != args.window || call.runs.size() != runs.size())
      return false;
    for (size_t i = 0; i < runs.size(); ++i)
      if (call.runs[i].positions != runs[i].positions ||
          call.runs[i].num_keys != runs[i].num_keys ||
          call.runs[i].head_stride != runs[i].head_stride ||
          shift_between(runs[i], call.runs[i]) != shift_between(runs[0], call.runs[0]))
        return false;
    return true;
  }
};

namespace {

/// `lasts`: the call's spans are those of the caller, who keeps them to the end of a step.
std::shared_ptr<const PlannedAttention> planned(const AttentionArgs& args, const PlanLimits& limits,
                                                bool lasts, Context& context,
                                                device::Stream& stream) {
  const bool in_step = context.staging.in_step();  // after it, spans may have become others
  if (in_step)
    for (const auto& earlier : context.planned)
      if (earlier->serves(args, limits)) return earlier;
  auto made = std::make_shared<PlannedAttention>();
  made->args = args;
  made->limits = limits;
  made->runs.assign(args.runs.begin(), args.runs.end());
  made->plan = plan_attention(args, limits);
  made->there = upload(args, made->plan, context.staging, stream);
  if (lasts && in_step) context.planned.push_back(made);
  return made;
}

void attention_by_own_kernels(const AttentionArgs& args, bool lasts, Context& context,
                              device::Stream& stream) {
  const int64_t head_dim = args.q.size(2);
  if (head_dim > max_head_dim)
    fail<Unsupported>("heads of {} elements; the CUDA backend takes up to {}", head_dim,
                      max_head_dim);
  const bool on_tensor_cores = suits_tensor_cores(args);
  const PlanLimits limits = {.wide_rows = on_tensor_cores ? 16 * wide_warps : fma_tile_rows,
                             .narrow_rows = on_tensor_cores ? 16 : 0,
                             .blocks_wanted = 4 * int64_t{context.device.info().multiprocessors}};
  const auto call = planned(args, limits, lasts, context, stream);
  const AttentionPlan& plan = call->plan;
  const OnDevice& there = call->there;

  AttentionParams params = {
      .q = args.q.as<const float>(),
      .query_positions = there.query_positions,
      .runs = there.runs,
      .key_tiles = there.key_tiles,
      .query_tiles = nullptr,
      .out = args.out.as<float>(),
      .lse = args.lse.as<float>(),
      .partial_out = nullptr,
      .partial_lse = nullptr,
      .shift = args.runs.empty() ? RunShift{} : shift_between(call->runs[0], args.runs[0]),
      .num_heads = args.q.size(1),
      .num_kv_heads = args.num_kv_heads,
      .head_dim = head_dim,
      .window = args.window,
      .scale = args.scale};
  int index = 0;
  for (const TileList* list : {&plan.wide, &plan.narrow}) {
    const int64_t partial_rows = list->num_partials * args.num_kv_heads * list->tile_rows;
    const TensorView partials = context.partials.tensor(DType::fp32, {partial_rows, head_dim + 1});
    params.partial_out = partials.as<float>();
    params.partial_lse = params.partial_out + partial_rows * head_dim;
    params.query_tiles = there.query_tiles[index];
    run({params, *list, args.row_invariant, stream}, args.kv_dtype, on_tensor_cores,
        limits.wide_rows);
    launch(stream, {.x = static_cast<int64_t>(list->partial_tiles.size()), .y = args.num_kv_heads},
           attention_combine_kernel, params, there.partial_tiles[index],
           static_cast<int>(list->tile_rows));
    ++index;
  }
}

}  // namespace

void attention(const AttentionArgs& args, Context& context, device::Stream& stream) {
  if (args.row_invariant == RowInvariant::yes)  // the library's order follows from its rectangles
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
