// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/api/checks.hpp"
#include "kernels/api/validate.hpp"

namespace pecia::kernels {
namespace {

void check_stored_kv(std::string_view name, DType dtype) {
  PECIA_CHECK(is_float(dtype) || dtype == DType::fp8, "{} is {}, expected fp32, bf16, fp16 or fp8",
              name, name_of(dtype));
}

void check_run(const KeyRun& run, const StoredKeys& keys, DType dtype, int64_t head_dim, size_t i) {
  PECIA_CHECK(run.num_keys >= 0 && (run.num_keys == 0 || (keys.k && keys.v)),
              "runs[{}] has {} keys and a null pointer or a negative count", i, run.num_keys);
  PECIA_CHECK(run.offset >= 0 && run.stride >= 1, "runs[{}] begins at element {}, with stride {}",
              i, run.offset, run.stride);
  if (dtype != DType::fp8 || run.num_keys == 0) return;
  PECIA_CHECK(keys.k_scales && keys.v_scales, "fp8 keys without scales");
  PECIA_CHECK(
      run.offset % head_dim == 0 && run.head_stride % head_dim == 0,
      "runs[{}] has fp8 keys from element {} and heads {} elements apart, not multiples of {}", i,
      run.offset, run.head_stride, head_dim);
}

}  // namespace

void validate(const RopeArgs& args) {
  check_rank("x", args.x, 3);
  check_fp32("x", args.x);
  check_dense("x", args.x);
  check_float("out", args.out.dtype());
  check_shape("out", args.out, {args.x.rows(), args.x.size(1), args.x.size(2)});
  check_dense("out", args.out);
  check_rank("cos", args.cos, 2);
  check_fp32("cos", args.cos);
  check_fp32("sin", args.sin);
  check_shape("cos", args.cos, {args.x.rows(), args.cos.size(1)});
  check_shape("sin", args.sin, {args.x.rows(), args.cos.size(1)});
  PECIA_CHECK(args.first >= 0 && args.first + 2 * args.cos.size(1) <= args.x.size(2),
              "rotary_dim {} from element {} of heads of {}", 2 * args.cos.size(1), args.first,
              args.x.size(2));
  if (!args.scale) return;
  check_fp32("scale", args.scale);
  check_shape("scale", args.scale, {args.x.rows()});
}

void validate(const RopeTablesArgs& args) {
  check_rank("cos", args.cos, 2);
  const int64_t rows = args.cos.rows(), pairs = args.cos.size(1);
  check_fp32("cos", args.cos);
  check_fp32("sin", args.sin);
  check_shape("sin", args.sin, {rows, pairs});
  check_size("positions", args.positions.size(), rows);
  check_size("sets", args.sets.size(), rows);
  if (pairs == 0) return;
  const auto sets = std::ssize(args.frequencies) / pairs;
  check_size("frequencies", args.frequencies.size(), sets * pairs);
  check_size("factors", args.factors.size(), sets);
  for (int64_t t = 0; t < rows; ++t)
    PECIA_CHECK(args.sets[t] >= 0 && args.sets[t] < sets, "sets[{}] is {}, outside [0, {})", t,
                args.sets[t], sets);
}

namespace {
void check_cache(const TensorView& cache, const TensorView& scales, int64_t heads,
                 int64_t head_dim) {
  check_rank("cache", cache, 3);
  check_stored_kv("cache", cache.dtype());
  check_shape("cache", cache, {heads, cache.size(1), head_dim});
  if (cache.dtype() == DType::fp8) {
    check_fp32("scales", scales);
    check_shape("scales", scales, {cache.rows(), cache.size(1)});
  } else {
    PECIA_CHECK(!scales, "scales for a cache of {}", name_of(cache.dtype()));
  }
}
}  // namespace

void validate(const KvStoreArgs& args) {
  check_rank("x", args.x, 3);
  check_fp32("x", args.x);
  check_dense("x", args.x);
  check_cache(args.cache, args.scales, args.x.size(1), args.x.size(2));
  check_size("slots", args.slots.size(), args.x.rows());
  check_indices("slots", args.slots, args.cache.size(1));
}

void validate(const RotateAndStoreArgs& args) {
  check_rank("q_out", args.q_out, 3);
  PECIA_CHECK(args.q_out.dtype() == DType::fp32 || args.q_out.dtype() == DType::bf16, "q_out is {}",
              name_of(args.q_out.dtype()));
  check_dense("q_out", args.q_out);
  const int64_t rows = args.q_out.rows(), head_dim = args.q_out.size(2);
  const int64_t heads = args.q_out.size(1), kv_heads = args.keys.vectors.rows();
  for (const auto& [stored, x] : {std::pair{&args.keys, &args.k}, {&args.values, &args.v}}) {
    check_cache(stored->vectors, stored->scales, kv_heads, head_dim);
    check_fp32("x", *x);
    check_shape("x", *x, {rows, kv_heads * head_dim});
  }
  PECIA_CHECK(args.keys.vectors.dtype() == args.values.vectors.dtype(), "keys of {}, values of {}",
              name_of(args.keys.vectors.dtype()), name_of(args.values.vectors.dtype()));
  check_fp32("q", args.q);
  check_shape("q", args.q, {rows, heads * head_dim});
  check_size("slots", args.slots.size(), rows);
  check_indices("slots", args.slots,
                std::min(args.keys.vectors.size(1), args.values.vectors.size(1)));
  PECIA_CHECK(static_cast<bool>(args.q_norm) == static_cast<bool>(args.k_norm) &&
                  static_cast<bool>(args.cos) == static_cast<bool>(args.sin),
              "one norm or one table without the other");
  for (const TensorView* norm : {&args.q_norm, &args.k_norm}) {
    if (!*norm) continue;
    check_float("norm", norm->dtype());
    check_shape("norm", *norm, {head_dim});
    PECIA_CHECK(norm->dtype() == args.q_norm.dtype(), "norms of two types");
  }
  if (!args.cos) return;
  check_rank("cos", args.cos, 2);
  for (const TensorView* table : {&args.cos, &args.sin}) {
    check_fp32("cos and sin", *table);
    check_shape("cos and sin", *table, {rows, args.cos.size(1)});
  }
  PECIA_CHECK(2 * args.cos.size(1) <= head_dim, "rotary_dim {} of heads of {}",
              2 * args.cos.size(1), head_dim);
}

namespace {
void check_merged(const AttentionArgs& args) {
  if (args.merged == 1) return;
  PECIA_CHECK(args.merged > 1 && std::has_single_bit(static_cast<unsigned>(args.merged)) &&
                  args.items.size() % static_cast<size_t>(args.merged) == 0,
              "{} items are merged by {}", args.items.size(), args.merged);
  PECIA_CHECK(args.row_invariant == RowInvariant::yes, "items are merged without RowInvariant");
  for (size_t i = 0; i < args.items.size(); ++i) {
    const AttentionItem& first = args.items[i - i % static_cast<size_t>(args.merged)];
    PECIA_CHECK(
        args.items[i].first_row == first.first_row && args.items[i].num_rows == first.num_rows,
        "items[{}] is merged with another one's rows", i);
  }
}

void check_continued(const AttentionArgs& args) {
  if (args.from == AttentionFrom::nothing) return;
  check_fp32("out that is continued", args.out);
  PECIA_CHECK(args.row_invariant == RowInvariant::no, "a result is continued with RowInvariant");
}
}  // namespace

void validate(const AttentionArgs& args) {
  check_rank("q", args.q, 3);
  const int64_t rows = args.q.rows(), num_heads = args.q.size(1);
  check_float("q", args.q.dtype());
  check_float("out", args.out.dtype());
  check_fp32("lse", args.lse);
  check_rank("out", args.out, 3);
  check_shape("out", args.out, {rows, num_heads, args.out.size(2)});
  PECIA_CHECK(args.out.size(2) <= args.q.size(2), "values of {} in keys of {} elements",
              args.out.size(2), args.q.size(2));
  check_shape("lse", args.lse, {rows, num_heads});
  check_dense("q", args.q);
  check_dense("out", args.out);
  check_dense("lse", args.lse);
  check_stored_kv("kv_dtype", args.kv_dtype);
  check_size("query_positions", args.query_positions.size(), rows);
  PECIA_CHECK(args.num_kv_heads > 0 && num_heads % args.num_kv_heads == 0,
              "{} heads share {} KV heads", num_heads, args.num_kv_heads);
  PECIA_CHECK(args.window.tokens >= 0, "a window of {}", args.window.tokens);
  for (size_t i = 0; i < args.items.size(); ++i) {
    const AttentionItem& item = args.items[i];
    PECIA_CHECK(item.first_row >= 0 && item.num_rows >= 0 && item.num_rows <= rows - item.first_row,
                "items[{}] has {} rows from {}, of {}", i, item.num_rows, item.first_row, rows);
    const auto num_runs = static_cast<int64_t>(args.runs.size());
    PECIA_CHECK(
        item.first_run >= 0 && item.num_runs >= 0 && item.num_runs <= num_runs - item.first_run,
        "items[{}] has {} runs from {}, of {}", i, item.num_runs, item.first_run, num_runs);
  }
  for (size_t i = 0; i < args.runs.size(); ++i)
    check_run(args.runs[i], args.keys, args.kv_dtype, args.q.size(2), i);
  check_merged(args);
  check_continued(args);
}

void refuse_rounded(const AttentionArgs& args, std::string_view backend) {
  if (args.out.dtype() != DType::fp32)
    fail<Unsupported>("the backend {} writes results of attention in fp32, not in {}", backend,
                      name_of(args.out.dtype()));
}

void refuse_continued(const AttentionArgs& args, std::string_view backend) {
  if (args.from != AttentionFrom::nothing)
    fail<Unsupported>("the backend {} continues no results of attention", backend);
}

void refuse_other_queries(const AttentionArgs& args, DType query_type, std::string_view backend) {
  if (args.q.dtype() != DType::fp32 && args.q.dtype() != query_type)
    fail<Unsupported>("the backend {} takes no queries in {} for keys in {} and heads of {}",
                      backend, name_of(args.q.dtype()), name_of(args.kv_dtype), args.q.size(2));
}

void refuse_merged(const AttentionArgs& args, std::string_view backend) {
  if (args.merged != 1) fail<Unsupported>("the backend {} merges no results of attention", backend);
}

void validate(const ColumnSumsArgs& args) {
  check_rank("q", args.q, 3);
  check_fp32("q", args.q);
  check_dense("q", args.q);
  const int64_t rows = args.q.rows(), num_heads = args.q.size(1), head_dim = args.q.size(2);
  check_fp32("lse", args.lse);
  check_dense("lse", args.lse);
  check_shape("lse", args.lse, {rows, num_heads});
  check_fp32("sums", args.sums);
  check_shape("sums", args.sums, {args.num_kv_heads, args.run.num_keys});
  check_size("query_positions", args.query_positions.size(), rows);
  PECIA_CHECK(args.num_kv_heads > 0 && num_heads % args.num_kv_heads == 0,
              "{} heads share {} KV heads", num_heads, args.num_kv_heads);
  PECIA_CHECK(args.window.tokens >= 0, "a window of {}", args.window.tokens);
  PECIA_CHECK(is_float(args.kv_dtype) || args.kv_dtype == DType::fp8, "keys of {}",
              name_of(args.kv_dtype));
  StoredKeys keys = args.keys;
  keys.v = keys.k, keys.v_scales = keys.k_scales;
  check_run(args.run, keys, args.kv_dtype, head_dim, 0);
}

void validate(const MergeArgs& args) {
  check_rank("part_out", args.part_out, 3);
  check_rank("out", args.out, 3);
  const int64_t parts = args.part_out.rows(), heads = args.part_out.size(1);
  if (args.part_out.dtype() != DType::bf16) check_fp32("part_out", args.part_out);
  check_fp32("part_lse", args.part_lse);
  check_fp32("out", args.out);
  check_fp32("lse", args.lse);
  check_shape("part_lse", args.part_lse, {parts, heads});
  check_shape("out", args.out, {args.out.rows(), heads, args.part_out.size(2)});
  check_shape("lse", args.lse, {args.out.rows(), heads});
  check_dense("part_out", args.part_out);
  check_dense("part_lse", args.part_lse);
  check_dense("out", args.out);
  check_dense("lse", args.lse);
  if (args.rows.empty())
    PECIA_CHECK(parts <= args.out.rows(), "{} parts of {} rows", parts, args.out.rows());
  else
    check_size("rows", args.rows.size(), parts);
  check_indices("rows", args.rows, args.out.rows());
}

}  // namespace pecia::kernels
