// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "kernels/api/checks.hpp"
#include "kernels/api/validate.hpp"
#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"

namespace pecia::kernels {
namespace {

/// Quantised rows of `numbers` numbers, with scales and zero points.
void check_codes(std::string_view name, const TensorView& codes, const TensorView& scales,
                 int64_t rows, int64_t numbers) {
  const DType type = codes.dtype();
  PECIA_CHECK(is_code(type), "{} are {}, expected fp8, int8, int4, mxfp4 or nvfp4", name,
              name_of(type));
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
                   float factor, int64_t rows, int64_t columns, DType x) {
  const DType type = weights.dtype();
  PECIA_CHECK(type == DType::nvfp4 || factor == 1, "{} of {} with a factor of {}", name,
              name_of(type), factor);
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

}  // namespace

void validate(const LinearArgs& args) {
  check_rank("x", args.x, 2);
  check_rank("weight", args.weight, 2);
  check_products(args);
  check_weights("weight", args.weight, args.weight_scales, args.weight_factor, args.weight.rows(),
                args.x.size(1), args.x.dtype());
  check_shape("y", args.y, {args.x.rows(), args.weight.rows()});
  PECIA_CHECK(args.splits >= 1 && std::has_single_bit(static_cast<unsigned>(args.splits)) &&
                  args.x.size(1) % args.splits == 0,
              "{} splits of a sum of {}", args.splits, args.x.size(1));
  PECIA_CHECK(args.splits == 1 || args.row_invariant == RowInvariant::yes,
              "{} splits without row invariance", args.splits);
  check_bias("bias", args.bias, args.weight.rows());
}

void validate(const HeadLinearArgs& args) {
  check_rank("x", args.x, 2);
  check_rank("weight", args.weight, 2);
  check_rank("y", args.y, 2);
  check_float("weight", args.weight.dtype());
  PECIA_CHECK(args.heads >= 1, "{} heads", args.heads);
  check_shape("weight", args.weight, {args.heads * args.out(), args.in()});
  validate(linear_of_head(args, 0));
  const int64_t rows = args.y.rows();
  const bool beside =
      args.y_step >= args.out() &&
      (rows <= 1 || (args.heads - 1) * args.y_step + args.out() <= args.y.row_stride());
  const bool behind = args.y_step >= (rows - 1) * args.y.row_stride() + args.out();
  PECIA_CHECK(args.heads == 1 || rows == 0 || beside || behind,
              "{} heads of {} rows of {} numbers, {} apart, overlap", args.heads, rows, args.out(),
              args.y_step);
  PECIA_CHECK(args.x_step >= 0, "heads of x {} apart", args.x_step);
}

void refuse_rounded_products(const TensorView& products, std::string_view backend) {
  if (products.dtype() != DType::fp32)
    fail<Unsupported>("the backend {} has products in fp32, not in {}", backend,
                      name_of(products.dtype()));
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
  PECIA_CHECK(args.codes.dtype() != DType::mxfp4 && args.codes.dtype() != DType::nvfp4,
              "numbers are not rounded to {}", name_of(args.codes.dtype()));
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

void validate(const GatedLinearArgs& args) {
  check_rank("x", args.x, 2);
  check_rank("gate", args.gate, 2);
  const int64_t ffn = args.gate.rows(), in = args.x.size(1);
  check_weights("gate", args.gate, args.gate_scales, args.gate_factor, ffn, in, args.x.dtype());
  check_weights("up", args.up, args.up_scales, args.up_factor, ffn, in, args.x.dtype());
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
  const int64_t experts = args.logits.size(1);
  PECIA_CHECK(k >= 1 && k <= experts, "{} of {} experts", k, experts);
  check_choice(args.chosen, args.weights, args.logits.rows());
  const auto [groups, kept, normed, scale, by_logits] = args.sigmoid;
  PECIA_CHECK(args.routing == Routing::sigmoid || (!args.bias && args.sigmoid == SigmoidRouting{}),
              "a bias or groups of experts whose weights are of a softmax");
  if (args.bias) {
    check_fp32("bias", args.bias);
    check_shape("bias", args.bias, {experts});
  }
  PECIA_CHECK(!by_logits || (!args.bias && groups == 1), "a bias or groups beside logits");
  if (args.scales) {
    check_fp32("scales", args.scales);
    check_shape("scales", args.scales, {experts});
  }
  PECIA_CHECK(groups >= 1 && groups <= most_expert_groups && kept >= 1 && kept <= groups,
              "{} of {} groups of experts", kept, groups);
  PECIA_CHECK(groups == 1 ||
                  (experts % groups == 0 && experts / groups >= 2 && k <= experts / groups * kept),
              "{} of {} experts, of {} of {} groups", k, experts, kept, groups);
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
    check_weights("gate", expert.gate, expert.gate_scales, expert.gate_factor, ffn, hidden,
                  args.x.dtype());
    check_weights("up", expert.up, expert.up_scales, expert.up_factor, ffn, hidden, args.x.dtype());
    check_weights("down", expert.down, expert.down_scales, expert.down_factor, hidden, ffn,
                  DType::fp32);
    check_bias("gate_bias", expert.gate_bias, ffn);
    check_bias("up_bias", expert.up_bias, ffn);
    check_bias("down_bias", expert.down_bias, hidden);
    PECIA_CHECK(args.weighed == Weighed::outputs || (!expert.gate_bias && !expert.up_bias),
                "biases beside weights of inputs");
  }
}

}  // namespace pecia::kernels
