// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/attention/attention_by_library.hpp"
#include "kernels/cuda/attention/attention_fold_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

bool suits_library(const AttentionArgs& args) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  for (const KeyRun& run : args.runs)
    if (run.num_keys > 0 && (run.offset % 8 != 0 || run.head_stride % 8 != 0)) return false;
  return (args.kv_dtype == DType::bf16 || args.kv_dtype == DType::fp16) &&
         args.q.size(2) % 8 == 0 && aligned(args.q.data()) && aligned(args.out.data()) &&
         aligned(args.keys.k) && aligned(args.keys.v);
}

/// Computes rectangles one after the other, with one scratch memory for all.
class Computer {
 public:
  Computer(const AttentionArgs& args, Context& context, device::Stream& stream)
      : args_(args),
        context_(context),
        stream_(stream),
        num_heads_(args.q.size(1)),
        head_dim_(args.q.size(2)) {}

  SdpaShape shape_of(const Rectangle& rectangle) const {
    return {.dtype = args_.kv_dtype,
            .num_heads = num_heads_,
            .num_kv_heads = args_.num_kv_heads,
            .head_dim = head_dim_,
            .num_rows = rectangle.num_rows,
            .num_keys = rectangle.num_keys,
            .kv_head_stride = args_.runs[rectangle.run].head_stride,
            .mask = rectangle.mask,
            .window = rectangle.mask == Mask::band ? args_.window : 0,
            .scale = args_.scale};
  }

  /// Returns false if the library could not start.
  bool compute(const RectangleRows& rows) {
    for (const FoldRows& unseen : rows.unseen)
      launch(stream_, warps_for(unseen.num_rows), attention_empty_kernel, out(unseen.first_row),
             lse(unseen.first_row), unseen.num_rows * num_heads_, head_dim_);
    if (rows.rectangles.empty()) return true;
    const TensorView q = rounded_queries(rows);
    return std::ranges::all_of(rows.rectangles, [&](const Rectangle& rectangle) {
      return compute(rectangle,
                     q.slice_rows(rectangle.first_row - rows.first_row, rectangle.num_rows));
    });
  }

 private:
  TensorView rounded_queries(const RectangleRows& rows) {
    const int64_t columns = num_heads_ * head_dim_;
    const TensorView from =
        args_.q.slice_rows(rows.first_row, rows.num_rows).reshape({rows.num_rows, columns});
    const TensorView to = context_.rounded_q.tensor(args_.kv_dtype, {rows.num_rows, columns});
    with_stored_type(args_.kv_dtype, [&](auto type) {
      using T = decltype(type);
      if constexpr (!std::is_same_v<T, float>)
        launch(stream_, grid_of_rows(rows.num_rows, columns / 4), convert_kernel<4, float, T>,
               matrix<const float>(from), matrix<T>(to));
    });
    return to;
  }

  bool compute(const Rectangle& rectangle, const TensorView& q) {
    const KeyRun& run = args_.runs[rectangle.run];
    const int64_t offset = (run.offset + rectangle.first_key * head_dim_) * size_of(args_.kv_dtype);
    const int64_t rows = rectangle.num_rows;
    const TensorView part =
        context_.part_out.tensor(args_.kv_dtype, {rows, num_heads_ * head_dim_});
    const TensorView part_lse = context_.part_lse.tensor(DType::fp32, {num_heads_, rows});
    if (!context_.sdpa->run(
            {shape_of(rectangle), q.data(), static_cast<const char*>(args_.keys.k) + offset,
             static_cast<const char*>(args_.keys.v) + offset, part.data(), part_lse.as<float>()},
            stream_))
      return false;
    for (const FoldRows& fold : rectangle.folds) {
      const int64_t first = fold.first_row - rectangle.first_row;
      const FoldParams params = {part.row(first),
                                 part_lse.as<const float>() + first,
                                 rows,
                                 out(fold.first_row),
                                 lse(fold.first_row),
                                 fold.num_rows,
                                 num_heads_,
                                 head_dim_};
      with_stored_type(args_.kv_dtype, [&](auto type) {
        using T = decltype(type);
        if constexpr (!std::is_same_v<T, float>)
          launch(stream_, warps_for(fold.num_rows),
                 fold.how == Fold::merge ? attention_fold_kernel<T, true>
                                         : attention_fold_kernel<T, false>,
                 params);
      });
    }
    return true;
  }

  Grid warps_for(int64_t rows) const {
    constexpr int threads = 128, warps = threads / warp_size;
    return {.x = (rows * num_heads_ + warps - 1) / warps, .threads = threads};
  }
  float* out(int64_t row) const { return args_.out.as<float>() + row * num_heads_ * head_dim_; }
  float* lse(int64_t row) const { return args_.lse.as<float>() + row * num_heads_; }

  const AttentionArgs& args_;
  Context& context_;
  device::Stream& stream_;
  int64_t num_heads_, head_dim_;
};

}  // namespace

std::vector<AttentionItem> attention_by_library(const AttentionArgs& args, Context& context,
                                                device::Stream& stream) {
  std::vector<AttentionItem> rest(args.items.begin(), args.items.end());
  if (context.sdpa == nullptr || !suits_library(args)) return rest;
  Computer computer(args, context, stream);
  std::erase_if(rest, [&](const AttentionItem& item) {
    const auto rectangles = cut_rectangles(args, item, RectangleLimits{});
    if (!rectangles) return false;
    for (const RectangleRows& rows : *rectangles)
      for (const Rectangle& rectangle : rows.rectangles)
        if (!context.sdpa->takes(computer.shape_of(rectangle))) return false;
    // What the library did before it failed is written anew by the kernels that get the item then.
    return std::ranges::all_of(*rectangles,
                               [&](const RectangleRows& rows) { return computer.compute(rows); });
  });
  return rest;
}

}  // namespace pecia::kernels::cuda
