// SPDX-License-Identifier: Apache-2.0
#include "lib/model/products.hpp"

#include <algorithm>
#include <bit>

#include "lib/parallel/virtual_ranks.hpp"

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

namespace {

DType operand_of(const WeightViews& weights, const kernels::Backend& backend) {
  const DType first = weights.matrix_type();
  for (const LayerWeights& layer : weights.layers)
    for (const MatrixKind kind : layer_kinds)
      for (const LinearWeight::Part& part : layer.matrix(kind).parts)
        if (part.weight.dtype() != first) return DType::fp32;
  return backend.operand_type(first);
}

}  // namespace

Products::Products(const ModelConfig& config, const WeightViews& weights,
                   const context::Compute& compute, kernels::RowInvariant row_invariant, int ranks)
    : compute_(compute),
      row_invariant_(row_invariant),
      splits_(row_invariant == kernels::RowInvariant::yes
                  ? parallel::layout_splits(config.num_heads, config.ffn)
                  : 1),
      norm_eps_(static_cast<float>(config.rms_norm_eps)),
      hidden_eps_(static_cast<float>(config.rms_norm_eps /
                                     (config.residual_scale * config.residual_scale))),
      head_dim_(config.head_dim),
      operand_(operand_of(weights, compute.backend)),
      part_sums_(compute.buffers(ranks)) {}

void Products::linear(const char* name, const TensorView& x, const LinearWeight& weight,
                      const TensorView& y, Accumulate accumulate, int splits) {
  const ScopedSpan span(compute_.recorder, name, Kind::compute, weight.bytes(),
                        2.0 * static_cast<double>(x.rows()) * static_cast<double>(x.size(1)) *
                            static_cast<double>(y.size(1)));
  if (weight.blocks == LinearWeight::Blocks::columns) {
    const TensorView sum = part_sums_.back().tensor(DType::fp32, {y.rows(), y.size(1)});
    const bool adds = accumulate == Accumulate::yes;
    const auto parts = static_cast<int>(weight.parts.size());
    sum_columns(x, weight.parts, share_of_splits(splits, parts), 0, adds ? sum : y);
    if (adds) compute_.backend.add({sum, y}, compute_.stream);
    return;
  }
  int64_t column = 0;
  for (const LinearWeight::Part& part : weight.parts) {
    const int64_t width = part.weight.rows();
    compute_.backend.linear({x, part.weight, part.bias, y.slice_columns(column, width), accumulate,
                             row_invariant_, splits, part.scales},
                            compute_.stream);
    column += width;
  }
}

/// Multiplies blocks of columns and adds the products in the order in which ranks would add them.
/// Each block has its share of the splits.
void Products::sum_columns(const TensorView& x, std::span<const LinearWeight::Part> parts,
                           int splits, size_t depth, const TensorView& y) {
  if (parts.size() == 1) {
    const LinearWeight::Part& part = parts.front();
    return compute_.backend.linear(
        {x, part.weight, part.bias, y, Accumulate::no, row_invariant_, splits, part.scales},
        compute_.stream);
  }
  const size_t left = std::bit_floor(parts.size() - 1);
  const TensorView right = part_sums_[depth].tensor(DType::fp32, {y.rows(), y.size(1)});
  const int64_t column = static_cast<int64_t>(left) * parts.front().weight.size(1);
  sum_columns(x.slice_columns(0, column), parts.first(left), splits, depth + 1, y);
  sum_columns(x.slice_columns(column, x.size(1) - column), parts.subspan(left), splits, depth + 1,
              right);
  compute_.backend.add({right, y}, compute_.stream);
}

void Products::norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                    const TensorView& marks, int32_t mark) {
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  compute_.backend.rms_norm({x, weight, norm_eps_, out, marks, mark}, compute_.stream);
}

void Products::norm_hidden(const TensorView& hidden, const TensorView& weight,
                           const TensorView& out, const TensorView& marks, int32_t mark) {
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  compute_.backend.rms_norm({hidden, weight, hidden_eps_, out, marks, mark}, compute_.stream);
}

void Products::norm_of_heads(const TensorView& x, const TensorView& weight,
                             const TensorView& squares) {
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  compute_.backend.rms_norm({.x = x,
                             .weight = weight,
                             .eps = norm_eps_,
                             .out = x,
                             .squares = squares,
                             .whole_width = squares.size(1) * head_dim_},
                            compute_.stream);
}

void Products::square_sums(const TensorView& x, const TensorView& sums) {
  const ScopedSpan span(compute_.recorder, "square_sums", Kind::compute);
  compute_.backend.square_sums({x, sums}, compute_.stream);
}

}  // namespace pecia::model
