// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/validate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "lib/core/codes.hpp"
#include "lib/core/error.hpp"
#include "lib/core/fp8_blocks.hpp"

namespace pecia::kernels {
namespace {

std::string shape_of(const TensorView& view) {
  std::string text = "[";
  for (int axis = 0; axis < view.rank(); ++axis)
    text += fmt::format("{}{}", axis ? ", " : "", view.size(axis));
  return text + "]";
}

void check_shape(std::string_view name, const TensorView& view,
                 std::initializer_list<int64_t> shape) {
  bool same = view.rank() == static_cast<int>(shape.size());
  int axis = 0;
  for (const int64_t extent : shape) same = same && view.size(axis++) == extent;
  PECIA_CHECK(same, "{} is {}, expected [{}]", name, shape_of(view), fmt::join(shape, ", "));
}

void check_rank(std::string_view name, const TensorView& view, int rank) {
  PECIA_CHECK(view.rank() == rank, "{} is {}, expected {} axes", name, shape_of(view), rank);
}

void check_fp32(std::string_view name, const TensorView& view) {
  PECIA_CHECK(view.dtype() == DType::fp32, "{} is {}, expected fp32", name, name_of(view.dtype()));
}

void check_float(std::string_view name, DType dtype) {
  PECIA_CHECK(is_float(dtype), "{} is {}, expected fp32, bf16 or fp16", name, name_of(dtype));
}

void check_stored_kv(std::string_view name, DType dtype) {
  PECIA_CHECK(is_float(dtype) || dtype == DType::fp8, "{} is {}, expected fp32, bf16, fp16 or fp8",
              name, name_of(dtype));
}

void check_dense(std::string_view name, const TensorView& view) {
  PECIA_CHECK(view.dense(), "{} {} has row stride {}, expected a dense tensor", name,
              shape_of(view), view.row_stride());
}

/// Rows of so many numbers as codes, and what says what they stand for.
void check_codes(std::string_view name, const TensorView& codes, const TensorView& scales,
                 int64_t rows, int64_t numbers) {
  const DType type = codes.dtype();
  PECIA_CHECK(is_code(type), "{} are {}, expected fp8, int8, int4 or mxfp4", name, name_of(type));
  PECIA_CHECK(scales, "{} of {} without scales", name, name_of(type));
  check_shape(name, codes, {rows, row_elements(type, numbers)});
  PECIA_CHECK(scales.dtype() == scale_type(type), "scales are {}, expected {}",
              name_of(scales.dtype()), name_of(scale_type(type)));
  if (type == DType::int4 && scales.rank() == 2 && scales.size(1) > 0 &&
      (scales.size(1) == row_scales(type, numbers, 64) ||
       scales.size(1) == row_scales(type, numbers, 32)))
    check_shape("scales", scales, {rows, scales.size(1)});
  else if (type == DType::fp8 && scales.rank() == 2)
    check_shape("scales", scales, {rows, scales.size(1) == 1 ? 1 : fp8_blocks(numbers)});
  else if (numbers_of(type) > 1)
    check_shape("scales", scales, {rows, row_scales(type, numbers)});
  else
    check_shape("scales", scales, {rows});
}

/// Weights [rows, columns], or their codes, that multiply x of a type.
void check_weights(std::string_view name, const TensorView& weights, const TensorView& scales,
                   int64_t rows, int64_t columns, DType x) {
  const DType type = weights.dtype();
  if (is_code(type)) {
    check_codes(name, weights, scales, rows, columns);
  } else {
    check_float(name, type);
    check_shape(name, weights, {rows, columns});
    PECIA_CHECK(!scales, "scales of {} weights", name_of(type));
  }
  const DType narrow = is_code(type) ? DType::bf16 : type;
  PECIA_CHECK(x == DType::fp32 || x == narrow, "x is {}, expected fp32{}", name_of(x),
              narrow == DType::fp32 ? "" : fmt::format(" or {}", name_of(narrow)));
}

void check_bias(std::string_view name, const TensorView& bias, int64_t size) {
  if (!bias) return;
  check_float(name, bias.dtype());
  check_shape(name, bias, {size});
}

void check_products(const LinearArgs& args) {
  if (args.y.dtype() != DType::bf16) return check_fp32("y", args.y);
  const DType type = args.weight.dtype();
  PECIA_CHECK(is_code(type) || type == DType::bf16, "y is bf16, and weights are {}", name_of(type));
  PECIA_CHECK(args.accumulate == Accumulate::no, "products are added to y in bf16");
  PECIA_CHECK(args.row_invariant == RowInvariant::no, "y is bf16 with RowInvariant");
}

void check_choice(const TensorView& chosen, const TensorView& weights, int64_t rows) {
  PECIA_CHECK(chosen.dtype() == DType::int32, "chosen is {}, expected int32",
              name_of(chosen.dtype()));
  check_shape("chosen", chosen, {rows, chosen.size(1)});
  check_dense("chosen", chosen);
  check_fp32("weights", weights);
  check_shape("weights", weights, {rows, chosen.size(1)});
  check_dense("weights", weights);
}

void check_size(std::string_view name, size_t size, int64_t expected) {
  PECIA_CHECK(static_cast<int64_t>(size) == expected, "{} has {} entries, expected {}", name, size,
              expected);
}

void check_indices(std::string_view name, std::span<const int64_t> indices, int64_t limit) {
  for (size_t i = 0; i < indices.size(); ++i)
    PECIA_CHECK(indices[i] >= 0 && indices[i] < limit, "{}[{}] is {}, outside [0, {})", name, i,
                indices[i], limit);
}

void check_vocabulary(std::string_view name, std::span<const int32_t> tokens, int64_t row,
                      int64_t vocab) {
  for (size_t i = 0; i < tokens.size(); ++i)
    PECIA_CHECK(tokens[i] >= 0 && tokens[i] < vocab, "rows[{}].{}[{}] is {}, outside [0, {})", row,
                name, i, tokens[i], vocab);
}

void check_tops(int64_t num_top, int64_t rows, int64_t vocab, size_t top_tokens,
                size_t top_logprobs) {
  PECIA_CHECK(num_top >= -1 && num_top <= vocab, "num_top is {}, outside [-1, {}]", num_top, vocab);
  check_size("top_tokens", top_tokens, num_top > 0 ? rows * num_top : 0);
  check_size("top_logprobs", top_logprobs, rows * (num_top < 0 ? vocab : num_top));
}

int64_t check_logits(const TensorView& logits) {
  check_rank("logits", logits, 2);
  check_fp32("logits", logits);
  check_dense("logits", logits);
  PECIA_CHECK(logits.rows() == 0 || logits.size(1) > 0, "logits of an empty vocabulary");
  return logits.size(1);
}

void check_params(const SamplingParams& p, int64_t row) {
  PECIA_CHECK(p.temperature >= 0 && std::isfinite(p.temperature), "rows[{}].temperature is {}", row,
              p.temperature);
  PECIA_CHECK(p.top_k >= 0, "rows[{}].top_k is {}", row, p.top_k);
  PECIA_CHECK(p.top_p > 0 && p.top_p <= 1, "rows[{}].top_p is {}, outside (0, 1]", row, p.top_p);
  PECIA_CHECK(p.min_p >= 0 && p.min_p <= 1, "rows[{}].min_p is {}, outside [0, 1]", row, p.min_p);
  PECIA_CHECK(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty),
              "rows[{}].repetition_penalty is {}", row, p.repetition_penalty);
  PECIA_CHECK(std::isfinite(p.presence_penalty) && std::isfinite(p.frequency_penalty),
              "rows[{}] has penalties {} and {}", row, p.presence_penalty, p.frequency_penalty);
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

void validate(const EmbeddingArgs& args) {
  check_rank("table", args.table, 2);
  check_float("table", args.table.dtype());
  check_shape("out", args.out, {static_cast<int64_t>(args.tokens.size()), args.table.size(1)});
  check_fp32("out", args.out);
}

void validate(const LinearArgs& args) {
  check_rank("x", args.x, 2);
  check_rank("weight", args.weight, 2);
  check_products(args);
  check_weights("weight", args.weight, args.weight_scales, args.weight.rows(), args.x.size(1),
                args.x.dtype());
  check_shape("y", args.y, {args.x.rows(), args.weight.rows()});
  PECIA_CHECK(args.splits >= 1 && std::has_single_bit(static_cast<unsigned>(args.splits)) &&
                  args.x.size(1) % args.splits == 0,
              "{} splits of a sum of {}", args.splits, args.x.size(1));
  PECIA_CHECK(args.splits == 1 || args.row_invariant == RowInvariant::yes,
              "{} splits without row invariance", args.splits);
  check_bias("bias", args.bias, args.weight.rows());
}

void validate(const PanelsArgs& args) {
  check_rank("matrix", args.matrix, 2);
  const int64_t rows = args.matrix.rows(), unit = PanelsArgs::panel_rows;
  PECIA_CHECK(args.begin >= 0 && args.begin <= args.end && args.end <= rows &&
                  args.begin % unit == 0 && (args.end % unit == 0 || args.end == rows),
              "panels of rows [{}, {}) of {}", args.begin, args.end, rows);
}

void validate(const QuantizeRowsArgs& args) {
  check_rank("x", args.x, 2);
  check_float("x", args.x.dtype());
  check_codes("codes", args.codes, args.scales, args.x.rows(), args.x.size(1));
  PECIA_CHECK(args.codes.dtype() != DType::mxfp4, "numbers are not rounded to mxfp4");
  PECIA_CHECK(args.codes.dtype() != DType::int4 ||
                  args.scales.size(1) == row_scales(DType::int4, args.x.size(1)),
              "numbers are rounded in groups of {} alone", int4_group);
  PECIA_CHECK(args.codes.dtype() != DType::fp8 || args.scales.rank() == 1,
              "rows are rounded to fp8 with one scale each");
  check_dense("scales", args.scales);
  if (!args.square_sums) return;
  check_fp32("square_sums", args.square_sums);
  check_shape("square_sums", args.square_sums, {args.x.rows(), 2});
  check_dense("square_sums", args.square_sums);
}

void validate(const SumRowsArgs& args) {
  check_rank("x", args.x, 2);
  check_float("x", args.x.dtype());
  check_shape("out", args.out, {args.out.rows(), args.x.size(1)});
  PECIA_CHECK(args.out.dtype() == args.x.dtype(), "out is {}, and x is {}",
              name_of(args.out.dtype()), name_of(args.x.dtype()));
  const int64_t terms = args.terms();
  check_size("which", args.which.size(), args.out.rows() * terms);
  PECIA_CHECK(terms >= 1 || args.out.rows() == 0, "no terms for {} rows", args.out.rows());
  if (terms > 1 || args.accumulate == Accumulate::yes) check_fp32("x", args.x);
  for (const int32_t row : args.which)
    PECIA_CHECK(row < args.x.rows(), "row {} of {}", row, args.x.rows());
}

void validate(const AddArgs& args) {
  check_rank("x", args.x, 2);
  check_fp32("x", args.x);
  check_fp32("y", args.y);
  check_shape("y", args.y, {args.x.rows(), args.x.size(1)});
}

void validate(const MaskTokensArgs& args) {
  check_rank("logits", args.logits, 2);
  check_fp32("logits", args.logits);
  const int64_t end = args.first_token + args.logits.size(1), rows = args.logits.rows();
  PECIA_CHECK(args.first_token >= 0, "first_token {}", args.first_token);
  const auto words = static_cast<int64_t>(args.words.size());
  PECIA_CHECK(rows == 0 ? words == 0 : words % rows == 0 && words / rows * 32 >= end,
              "{} words for {} rows of tokens up to {}", words, rows, end);
}

void validate(const SquareSumsArgs& args) {
  check_rank("x", args.x, 3);
  check_fp32("x", args.x);
  check_dense("x", args.x);
  check_fp32("sums", args.sums);
  check_shape("sums", args.sums, {args.x.rows(), args.x.size(1)});
}
void validate(const RmsNormArgs& args) {
  check_rank("x", args.x, 2);
  check_fp32("x", args.x);
  check_float("out", args.out.dtype());
  check_float("weight", args.weight.dtype());
  check_shape("weight", args.weight, {args.x.size(1)});
  check_shape("out", args.out, {args.x.rows(), args.x.size(1)});
  if (args.squares) {
    check_rank("squares", args.squares, 2);
    check_fp32("squares", args.squares);
    check_shape("squares", args.squares, {args.x.rows(), args.squares.size(1)});
    PECIA_CHECK(args.whole_width >= args.x.size(1), "a whole row of {} elements for parts of {}",
                args.whole_width, args.x.size(1));
  }
  if (!args.marks) return;
  check_shape("marks", args.marks, {args.x.rows()});
  PECIA_CHECK(args.marks.dtype() == DType::int32, "marks are {}", name_of(args.marks.dtype()));
}

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
  PECIA_CHECK(2 * args.cos.size(1) <= args.x.size(2), "rotary_dim {} of heads of {}",
              2 * args.cos.size(1), args.x.size(2));
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
  check_fp32("q_out", args.q_out);
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
  check_shape("out", args.out, {rows, num_heads, args.q.size(2)});
  check_shape("lse", args.lse, {rows, num_heads});
  check_dense("q", args.q);
  check_dense("out", args.out);
  check_dense("lse", args.lse);
  check_stored_kv("kv_dtype", args.kv_dtype);
  check_size("query_positions", args.query_positions.size(), rows);
  PECIA_CHECK(args.num_kv_heads > 0 && num_heads % args.num_kv_heads == 0,
              "{} heads share {} KV heads", num_heads, args.num_kv_heads);
  PECIA_CHECK(args.window >= 0, "a window of {}", args.window);
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

void refuse_rounded_products(const TensorView& products, std::string_view backend) {
  if (products.dtype() != DType::fp32)
    fail<Unsupported>("the backend {} has products in fp32, not in {}", backend,
                      name_of(products.dtype()));
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
  check_shape("sums", args.sums, {num_heads, args.run.num_keys});
  check_size("query_positions", args.query_positions.size(), rows);
  PECIA_CHECK(args.num_kv_heads > 0 && num_heads % args.num_kv_heads == 0,
              "{} heads share {} KV heads", num_heads, args.num_kv_heads);
  PECIA_CHECK(args.window >= 0, "a window of {}", args.window);
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
  check_fp32("part_out", args.part_out);
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

void validate(const GatedActivationArgs& args) {
  check_rank("gate", args.gate, 2);
  check_float("out", args.out.dtype());
  const DType narrow = args.out.dtype() == DType::bf16 ? DType::bf16 : DType::fp32;
  PECIA_CHECK(args.gate.dtype() == args.up.dtype() &&
                  (args.gate.dtype() == DType::fp32 || args.gate.dtype() == narrow),
              "gate is {}, up {} and out {}", name_of(args.gate.dtype()), name_of(args.up.dtype()),
              name_of(args.out.dtype()));
  check_shape("up", args.up, {args.gate.rows(), args.gate.size(1)});
  check_shape("out", args.out, {args.gate.rows(), args.gate.size(1)});
}

void validate(const XieluArgs& args) {
  check_rank("x", args.x, 2);
  check_fp32("x", args.x);
  check_float("out", args.out.dtype());
  check_shape("out", args.out, {args.x.rows(), args.x.size(1)});
}

void validate(const GatedLinearArgs& args) {
  check_rank("x", args.x, 2);
  check_rank("gate", args.gate, 2);
  const int64_t ffn = args.gate.rows(), in = args.x.size(1);
  check_weights("gate", args.gate, args.gate_scales, ffn, in, args.x.dtype());
  check_weights("up", args.up, args.up_scales, ffn, in, args.x.dtype());
  check_bias("gate_bias", args.gate_bias, ffn);
  check_bias("up_bias", args.up_bias, ffn);
  check_float("out", args.out.dtype());
  check_shape("out", args.out, {args.x.rows(), ffn});
}

void validate(const RouteArgs& args) {
  check_rank("logits", args.logits, 2);
  check_fp32("logits", args.logits);
  check_rank("chosen", args.chosen, 2);
  const int64_t k = args.chosen.size(1);
  PECIA_CHECK(k >= 1 && k <= args.logits.size(1), "{} of {} experts", k, args.logits.size(1));
  check_choice(args.chosen, args.weights, args.logits.rows());
}

void validate(const ExpertsArgs& args) {
  check_rank("x", args.x, 2);
  check_rank("chosen", args.chosen, 2);
  check_choice(args.chosen, args.weights, args.x.rows());
  check_fp32("y", args.y);
  check_shape("y", args.y, {args.x.rows(), args.x.size(1)});
  PECIA_CHECK(args.chosen.size(1) <= args.all_experts(), "{} of {} experts", args.chosen.size(1),
              args.all_experts());
  PECIA_CHECK(!args.experts.empty() && args.first_expert >= 0 &&
                  args.first_expert + std::ssize(args.experts) <= args.all_experts(),
              "{} experts from {} on, of {}", args.experts.size(), args.first_expert,
              args.all_experts());
  const int64_t hidden = args.x.size(1);
  for (const Expert& expert : args.experts) {
    check_rank("gate", expert.gate, 2);
    const int64_t ffn = expert.gate.rows();
    check_weights("gate", expert.gate, expert.gate_scales, ffn, hidden, args.x.dtype());
    check_weights("up", expert.up, expert.up_scales, ffn, hidden, args.x.dtype());
    check_weights("down", expert.down, expert.down_scales, hidden, ffn, DType::fp32);
    check_bias("gate_bias", expert.gate_bias, ffn);
    check_bias("up_bias", expert.up_bias, ffn);
    check_bias("down_bias", expert.down_bias, hidden);
  }
}

void validate(const SamplingArgs& args) {
  const int64_t vocab = check_logits(args.logits), rows = args.logits.rows();
  check_size("rows", args.rows.size(), rows);
  check_size("tokens", args.tokens.size(), rows);
  check_size("token_logprobs", args.token_logprobs.size(), rows);
  check_tops(args.num_top, rows, vocab, args.top_tokens.size(), args.top_logprobs.size());
  for (int64_t r = 0; r < rows; ++r) {
    const SamplingRow& row = args.rows[r];
    check_params(row.params, r);
    PECIA_CHECK(row.uniform >= 0 && row.uniform < 1, "rows[{}].uniform is {}", r, row.uniform);
    if (row.params.repetition_penalty != 1) check_vocabulary("prompt", row.prompt, r, vocab);
    check_vocabulary("output", row.output, r, vocab);
  }
}

void validate(const LogProbsArgs& args) {
  const int64_t vocab = check_logits(args.logits), rows = args.logits.rows();
  check_size("tokens", args.tokens.size(), rows);
  check_size("token_logprobs", args.token_logprobs.size(), rows);
  check_tops(args.num_top, rows, vocab, args.top_tokens.size(), args.top_logprobs.size());
  for (int64_t r = 0; r < rows; ++r)
    PECIA_CHECK(args.tokens[r] >= 0 && args.tokens[r] < vocab, "tokens[{}] is {}, outside [0, {})",
                r, args.tokens[r], vocab);
}

void validate(const ShortlistArgs& args) {
  const int64_t part = check_logits(args.logits), rows = args.logits.rows();
  PECIA_CHECK(args.first_token >= 0, "first_token is {}", args.first_token);
  PECIA_CHECK(args.num_candidates >= 1 && args.num_candidates <= part, "{} candidates of {} tokens",
              args.num_candidates, part);
  PECIA_CHECK(args.num_top >= 0 && args.num_top <= part, "{} top tokens of {}", args.num_top, part);
  check_size("log_sums", args.log_sums.size(), rows);
  check_size("candidates", args.candidates.size(), rows * args.num_candidates);
  check_size("tops", args.tops.size(), rows * args.num_top);
  if (!args.wanted.empty()) {
    check_size("wanted", args.wanted.size(), rows);
    PECIA_CHECK(args.rows.empty() && args.num_candidates == 1, "{} rows and {} candidates",
                args.rows.size(), args.num_candidates);
    return;
  }
  check_size("rows", args.rows.size(), rows);
  for (int64_t r = 0; r < rows; ++r) check_params(args.rows[r].params, r);
}

}  // namespace pecia::kernels
