// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/validate.hpp"

#include "kernels/api/checks.hpp"

namespace pecia::kernels {

void validate(const EmbeddingArgs& args) {
  check_rank("table", args.table, 2);
  check_float("table", args.table.dtype());
  check_shape("out", args.out, {static_cast<int64_t>(args.tokens.size()), args.table.size(1)});
  check_fp32("out", args.out);
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
  const bool largest = args.combine == CombineRows::largest;
  if (terms > 1 || args.accumulate == Accumulate::yes || largest) check_fp32("x", args.x);
  PECIA_CHECK(!largest || args.accumulate == Accumulate::no, "the largest of rows is accumulated");
  for (const int32_t row : args.which)
    PECIA_CHECK(row < args.x.rows(), "row {} of {}", row, args.x.rows());
}

void validate(const AddArgs& args) {
  check_rank("x", args.x, 2);
  if (args.x.dtype() != DType::bf16) check_fp32("x", args.x);
  check_fp32("y", args.y);
  check_shape("y", args.y, {args.x.rows(), args.x.size(1)});
}

void validate(const SoftCapArgs& args) {
  check_rank("x", args.x, 2);
  check_fp32("x", args.x);
  PECIA_CHECK(args.cap > 0, "values are capped at {}", args.cap);
}

void validate(const CastArgs& args) {
  check_rank("x", args.x, 2);
  const bool widens = args.x.dtype() == DType::bf16 && args.out.dtype() == DType::fp32;
  PECIA_CHECK(widens || (args.x.dtype() == DType::fp32 && args.out.dtype() == DType::bf16),
              "{} cast to {}", name_of(args.x.dtype()), name_of(args.out.dtype()));
  check_shape("out", args.out, {args.x.rows(), args.x.size(1)});
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

void validate(const GatedActivationArgs& args) {
  check_rank("gate", args.gate, 2);
  check_float("out", args.out.dtype());
  const DType narrow = args.out.dtype() == DType::bf16 ? DType::bf16 : DType::fp32;
  PECIA_CHECK(args.gate.dtype() == args.up.dtype() &&
                  (args.gate.dtype() == DType::fp32 || args.gate.dtype() == narrow),
              "gate is {}, up {} and out {}", name_of(args.gate.dtype()), name_of(args.up.dtype()),
              name_of(args.out.dtype()));
  check_rank("up", args.up, 2);
  const int64_t columns = args.up.size(1);
  check_shape("gate", args.gate, {args.up.rows(), args.gate.size(1) == 1 ? 1 : columns});
  check_shape("out", args.out, {args.up.rows(), columns});
}

void validate(const XieluArgs& args) {
  check_rank("x", args.x, 2);
  check_fp32("x", args.x);
  check_float("out", args.out.dtype());
  check_shape("out", args.out, {args.x.rows(), args.x.size(1)});
}

}  // namespace pecia::kernels
