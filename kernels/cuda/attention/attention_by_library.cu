// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/attention/attention_by_library.hpp"
#include "kernels/cuda/attention/attention_fold_kernel.cuh"
#include "kernels/cuda/attention/widen_keys_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

/// The widest heads that cuDNN takes (on compute capability 9.0).
constexpr int64_t widest_library_heads = 256;

bool suits_library(const AttentionArgs& args) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  for (const KeyRun& run : args.runs)
    if (run.num_keys > 0 && (run.offset % 8 != 0 || run.head_stride % 8 != 0)) return false;
  return args.kv_dtype != DType::fp32 && args.out.size(2) == args.q.size(2) &&
         args.q.size(2) % 8 == 0 && args.q.size(2) <= widest_library_heads &&
         aligned(args.q.data()) && aligned(args.out.data()) && aligned(args.keys.k) &&
         aligned(args.keys.v);
}

/// The type of keys that the library gets. Those of fp8 are widened for it: it takes one scale for
/// all of them, and they have one for each token and head.
DType library_type(const AttentionArgs& args) {
  return args.kv_dtype == DType::fp8 ? DType::bf16 : args.kv_dtype;
}

/// Widened keys and values of a rectangle have room in library_key_bytes.
RectangleLimits limits_of(const AttentionArgs& args) {
  if (args.kv_dtype != DType::fp8) return {};
  const int64_t bytes = 2 * args.num_kv_heads * args.q.size(2) * size_of(DType::bf16);
  return {.max_keys = std::max<int64_t>(1, library_key_bytes / bytes)};
}

/// Tells whether each row's result is that of one rectangle.
bool has_one_result_each(const RectangleRows& rows) {
  return rows.unseen.empty() && std::ranges::all_of(rows.rectangles, [](const Rectangle& each) {
           return std::ranges::all_of(each.folds,
                                      [](const FoldRows& fold) { return fold.how == Fold::write; });
         });
}

/// Computes rectangles one after the other, with one scratch memory for all. Where `out` has the
/// library's type, the library writes results of one rectangle there itself. Other results are
/// added up in fp32, and rounded where `out` is narrow.
class Computer {
 public:
  Computer(const AttentionArgs& args, Context& context, device::Stream& stream)
      : args_(args),
        context_(context),
        stream_(stream),
        type_(library_type(args)),
        num_heads_(args.q.size(1)),
        head_dim_(args.q.size(2)) {}

  SdpaShape shape_of(const Rectangle& rectangle) const {
    return {.dtype = type_,
            .num_heads = num_heads_,
            .num_kv_heads = args_.num_kv_heads,
            .head_dim = head_dim_,
            .num_rows = rectangle.num_rows,
            .num_keys = rectangle.num_keys,
            .kv_head_stride =
                widens() ? rectangle.num_keys * head_dim_ : args_.runs[rectangle.run].head_stride,
            .mask = rectangle.mask,
            .window = rectangle.mask == Mask::band ? args_.window.tokens : 0,
            .scale = args_.scale};
  }

  /// Returns false if the library could not start.
  bool compute(const RectangleRows& rows) {
    const TensorView out = rows_of(args_.out, rows.first_row, rows.num_rows);
    const bool in_place = out.dtype() == type_ && has_one_result_each(rows);
    const bool rounds = out.dtype() != DType::fp32 && !in_place;
    first_row_ = rows.first_row;
    out_ = rounds ? context_.partials.tensor(DType::fp32, {out.rows(), out.size(1)}) : out;
    if (!(in_place ? compute_in_place(rows) : compute_and_fold(rows))) return false;
    if (rounds) round(out_, out);
    return true;
  }

 private:
  bool compute_in_place(const RectangleRows& rows) {
    const TensorView q = rounded_queries(rows);
    return std::ranges::all_of(rows.rectangles, [&](const Rectangle& rectangle) {
      const int64_t count = rectangle.num_rows;
      const TensorView part_lse = context_.part_lse.tensor(DType::fp32, {num_heads_, count});
      if (!run(rectangle, q, out_.row(rectangle.first_row - first_row_), part_lse)) return false;
      constexpr int threads = 128;
      launch(stream_, {.x = (count * num_heads_ + threads - 1) / threads, .threads = threads},
             attention_lse_kernel, part_lse.as<const float>(), count, lse(rectangle.first_row),
             count, num_heads_);
      return true;
    });
  }

  bool compute_and_fold(const RectangleRows& rows) {
    for (const FoldRows& unseen : rows.unseen)
      launch(stream_, warps_for(unseen.num_rows), attention_empty_kernel, out(unseen.first_row),
             lse(unseen.first_row), unseen.num_rows * num_heads_, head_dim_);
    if (rows.rectangles.empty()) return true;
    const TensorView q = rounded_queries(rows);
    return std::ranges::all_of(rows.rectangles, [&](const Rectangle& rectangle) {
      return compute_and_fold(rectangle, q);
    });
  }

  TensorView rows_of(const TensorView& heads, int64_t first_row, int64_t count) const {
    return heads.slice_rows(first_row, count).reshape({count, num_heads_ * head_dim_});
  }

  /// Rounds rows of fp32 to the type of `to`, which has 16 bits.
  void round(const TensorView& from, const TensorView& to) {
    with_stored_type(to.dtype(), [&](auto type) {
      using T = decltype(type);
      if constexpr (!std::is_same_v<T, float>)
        launch(stream_, grid_of_rows(to.rows(), to.size(1) / 4), convert_kernel<4, float, T>,
               matrix<const float>(from), matrix<T>(to));
    });
  }

  TensorView rounded_queries(const RectangleRows& rows) {
    const TensorView from = rows_of(args_.q, rows.first_row, rows.num_rows);
    if (from.dtype() == type_) return from;
    const TensorView to = context_.rounded_q.tensor(type_, {from.rows(), from.size(1)});
    round(from, to);
    return to;
  }

  bool widens() const { return args_.kv_dtype == DType::fp8; }

  struct Keys {
    const void *k, *v;
  };
  Keys keys_of(const Rectangle& rectangle) {
    const KeyRun& run = args_.runs[rectangle.run];
    const int64_t first = run.offset + rectangle.first_key * head_dim_;
    if (!widens()) {
      const int64_t offset = first * size_of(args_.kv_dtype);
      return {static_cast<const char*>(args_.keys.k) + offset,
              static_cast<const char*>(args_.keys.v) + offset};
    }
    const int64_t vectors = args_.num_kv_heads * rectangle.num_keys;
    const TensorView wide = context_.widened.tensor(type_, {2, vectors * head_dim_});
    constexpr int threads = 256, warps = threads / warp_size;
    const auto widen = [&](const void* codes, const float* scales, void* to) {
      launch(stream_, {.x = (vectors + warps - 1) / warps, .threads = threads}, widen_keys_kernel,
             static_cast<const Fp8*>(codes), scales, first, run.head_stride, rectangle.num_keys,
             vectors, head_dim_, static_cast<Bf16*>(to));
    };
    widen(args_.keys.k, args_.keys.k_scales, wide.row(0));
    widen(args_.keys.v, args_.keys.v_scales, wide.row(1));
    return {wide.row(0), wide.row(1)};
  }

  /// `q` has the rows from first_row_ on.
  bool run(const Rectangle& rectangle, const TensorView& q, void* out, const TensorView& part_lse) {
    const Keys keys = keys_of(rectangle);
    return context_.sdpa->run({shape_of(rectangle), q.row(rectangle.first_row - first_row_), keys.k,
                               keys.v, out, part_lse.as<float>()},
                              stream_);
  }

  bool compute_and_fold(const Rectangle& rectangle, const TensorView& q) {
    const int64_t rows = rectangle.num_rows;
    const TensorView part = context_.part_out.tensor(type_, {rows, num_heads_ * head_dim_});
    const TensorView part_lse = context_.part_lse.tensor(DType::fp32, {num_heads_, rows});
    if (!run(rectangle, q, part.data(), part_lse)) return false;
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
      with_stored_type(type_, [&](auto type) {
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
  float* out(int64_t row) const {
    return out_.as<float>() + (row - first_row_) * num_heads_ * head_dim_;
  }
  float* lse(int64_t row) const { return args_.lse.as<float>() + row * num_heads_; }

  const AttentionArgs& args_;
  Context& context_;
  device::Stream& stream_;
  DType type_;
  int64_t num_heads_, head_dim_;
  int64_t first_row_ = 0;  ///< of the rows that are being computed
  TensorView out_;         ///< their results, [rows, num_heads · head_dim]: args.out or fp32
};

}  // namespace

std::vector<AttentionItem> attention_by_library(const AttentionArgs& args, Context& context,
                                                device::Stream& stream) {
  std::vector<AttentionItem> rest(args.items.begin(), args.items.end());
  if (context.sdpa == nullptr || !suits_library(args)) return rest;
  Computer computer(args, context, stream);
  std::erase_if(rest, [&](const AttentionItem& item) {
    const auto rectangles = cut_rectangles(args, item, limits_of(args));
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
