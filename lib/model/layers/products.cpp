// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/products.hpp"

#include <algorithm>
#include <bit>

#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

namespace {

DType operand_of(const WeightViews& weights, const kernels::Backend& backend) {
  const DType operand = backend.operand_type(weights.matrix_type());
  bool alike = true;
  for (const LayerWeights& layer : weights.layers)
    layer.for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
      for (const LinearWeight::Part& part : matrix.parts) {
        const DType type = part.weight.dtype();
        const bool is_small = kind == MatrixKind::router || kind == MatrixKind::shared_row_gate;
        const bool takes_operand = is_small && type == operand;
        alike = alike && (backend.operand_type(type) == operand || takes_operand);
      }
    });
  return alike ? operand : DType::fp32;
}

/// Part `index` of `count` equal parts of an expert's columns that lie in one block.
kernels::Expert part_of_expert(const GatedFfnWeights& expert, size_t block, int index, int count) {
  const LinearWeight::Part &up = expert.up.parts[block], &down = expert.down.parts[block];
  const LinearWeight::Part& gate = expert.has_gate ? expert.gate.parts[block] : up;
  if (count == 1)
    return {gate.weight, up.weight, down.weight, gate.scales, up.scales, down.scales,
            gate.bias,   up.bias,   down.bias,   gate.factor, up.factor, down.factor};
  const int64_t columns = gate.weight.rows() / count;
  const auto rows = [&](const TensorView& tensor) {
    return tensor ? tensor.slice_rows(index * columns, columns) : tensor;
  };
  const LinearWeight::Part of_down = down.columns(index * columns, columns);
  return {rows(gate.weight), rows(up.weight), of_down.weight,
          rows(gate.scales), rows(up.scales), of_down.scales,
          rows(gate.bias),   rows(up.bias),   index == 0 ? down.bias : TensorView(),
          gate.factor,       up.factor,       down.factor};
}

}  // namespace

Products::Products(const ModelConfig& config, const WeightViews& weights,
                   const attention::Compute& compute, kernels::RowInvariant row_invariant,
                   int ranks)
    : compute_(compute),
      row_invariant_(row_invariant),
      splits_(row_invariant == kernels::RowInvariant::yes
                  ? parallel::layout_splits(config.common_heads(), config.common_ffn())
                  : 1),
      norm_eps_(static_cast<float>(config.rms_norm_eps)),
      hidden_eps_(static_cast<float>(config.rms_norm_eps /
                                     (config.residual_scale * config.residual_scale))),
      head_dim_(config.head_dim),
      operand_(operand_of(weights, compute.backend)),
      part_sums_(compute.buffers(ranks)),
      expert_sums_(compute.buffers(ranks * splits_)),
      latent_sums_(compute.buffer()) {}

void Products::multiply(const char* name, const TensorView& x, const LinearWeight& weight,
                        const TensorView& y, Accumulate accumulate, int splits,
                        kernels::SameX same_x) {
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
                             row_invariant_, splits, part.scales, same_x, part.factor},
                            compute_.stream);
    column += width;
    same_x = kernels::SameX::yes;
  }
}

void Products::linear_of_heads(const char* name, const TensorView& x, const LinearWeight& weight,
                               int64_t heads, const TensorView& y) {
  const int64_t rows = x.rows(), in = weight.in(), out = weight.out() / heads;
  const ScopedSpan span(compute_.recorder, name, Kind::compute, weight.bytes(),
                        2.0 * static_cast<double>(rows * heads) * static_cast<double>(in * out));
  const int64_t x_dim = x.size(1) / heads, y_dim = y.size(1) / heads;
  for_each_matrix_of_heads(weight, out,
                           [&](const TensorView& matrices, int64_t head, int64_t count) {
                             compute_.backend.head_linear({.heads = count,
                                                           .x = x.slice_columns(head * x_dim, in),
                                                           .x_step = x_dim,
                                                           .weight = matrices,
                                                           .y = y.slice_columns(head * y_dim, out),
                                                           .y_step = y_dim,
                                                           .row_invariant = row_invariant_},
                                                          compute_.stream);
                           });
}

bool Products::gated(const TensorView& x, const GatedFfnWeights& weights,
                     kernels::Activation activation, const TensorView& out) {
  if (row_invariant_ == kernels::RowInvariant::yes || weights.gate.parts.size() != 1 ||
      weights.up.parts.size() != 1)
    return false;
  const LinearWeight::Part &gate = weights.gate.parts.front(), &up = weights.up.parts.front();
  const kernels::GatedLinearArgs args{.x = x,
                                      .gate = gate.weight,
                                      .up = up.weight,
                                      .out = out,
                                      .activation = activation,
                                      .gate_scales = gate.scales,
                                      .up_scales = up.scales,
                                      .gate_bias = gate.bias,
                                      .up_bias = up.bias,
                                      .gate_factor = gate.factor,
                                      .up_factor = up.factor};
  if (!compute_.backend.takes_gated_linear(args)) return false;
  const ScopedSpan span(compute_.recorder, "gated_linear", Kind::compute, gate.bytes() + up.bytes(),
                        4.0 * static_cast<double>(x.rows()) * static_cast<double>(x.size(1)) *
                            static_cast<double>(out.size(1)));
  compute_.backend.gated_linear(args, compute_.stream);
  return true;
}

/// Multiplies blocks of columns and adds the products in the order in which ranks would add them.
/// Each block has its share of the splits.
void Products::sum_columns(const TensorView& x, std::span<const LinearWeight::Part> parts,
                           int splits, size_t depth, const TensorView& y) {
  if (parts.size() == 1) {
    const LinearWeight::Part& part = parts.front();
    return compute_.backend.linear({x, part.weight, part.bias, y, Accumulate::no, row_invariant_,
                                    splits, part.scales, kernels::SameX::no, part.factor},
                                   compute_.stream);
  }
  const size_t left = std::bit_floor(parts.size() - 1);
  const TensorView right = part_sums_[depth].tensor(DType::fp32, {y.rows(), y.size(1)});
  const int64_t column = static_cast<int64_t>(left) * parts.front().in();
  sum_columns(x.slice_columns(0, column), parts.first(left), splits, depth + 1, y);
  sum_columns(x.slice_columns(column, x.size(1) - column), parts.subspan(left), splits, depth + 1,
              right);
  compute_.backend.add({right, y}, compute_.stream);
}

/// Experts whose columns are in one or several blocks of equal widths, each of which is cut into
/// `splits` parts.
std::vector<Products::MixturePart> Products::parts_of(std::span<const GatedFfnWeights> experts,
                                                      const SharedExpert& shared, int splits) {
  std::vector<MixturePart> parts;
  const size_t blocks = experts.front().down.parts.size();
  const int64_t count = static_cast<int64_t>(blocks) * splits;
  for (size_t block = 0; block < blocks; ++block)
    for (int index = 0; index < splits; ++index) {
      MixturePart part;
      for (const GatedFfnWeights& expert : experts)
        part.experts.push_back(part_of_expert(expert, block, index, splits));
      if (shared.down != nullptr) {
        const int64_t columns = shared.activated.size(1) / count;
        const LinearWeight::Part& down = shared.down->parts[block];
        part.activated = shared.activated.slice_columns(std::ssize(parts) * columns, columns);
        part.shared_down = splits == 1 ? down : down.columns(index * columns, columns);
      }
      parts.push_back(std::move(part));
    }
  return parts;
}

void Products::experts(const kernels::ExpertsArgs& args, std::span<const GatedFfnWeights> weights,
                       const LinearWeight* from_latents, const SharedExpert& shared,
                       Accumulate accumulate, int splits) {
  const auto [pairs, touched] = work_of(args, std::ssize(weights));
  const int64_t columns = weights.front().up.out();
  const int64_t bytes =
      weights.front().gate.bytes() + weights.front().up.bytes() + weights.front().down.bytes();
  int64_t beside_bytes = 0;
  double beside = 0;  // FLOPs of matrices that all rows take
  for (const LinearWeight* const of_all : {shared.down, from_latents})
    if (of_all != nullptr) {
      beside_bytes += of_all->bytes();
      beside += 2.0 * static_cast<double>(args.x.rows()) * static_cast<double>(of_all->in()) *
                static_cast<double>(args.y.size(1));
    }
  const ScopedSpan span(
      compute_.recorder, "experts", Kind::compute,
      static_cast<int64_t>(touched * static_cast<double>(bytes)) + beside_bytes,
      6 * pairs * static_cast<double>(columns) * static_cast<double>(args.x.size(1)) + beside);
  const auto ranks = static_cast<int>(weights.front().down.parts.size());
  const auto parts = parts_of(weights, shared, share_of_splits(splits, ranks));
  const bool adds = accumulate == Accumulate::yes;
  kernels::ExpertsArgs whole = args;
  whole.row_invariant = row_invariant_;
  if (adds) whole.y = expert_sums_.back().tensor(DType::fp32, {args.y.rows(), args.y.size(1)});
  sum_experts(whole, parts, from_latents, 0);
  if (adds) compute_.backend.add({whole.y, args.y}, compute_.stream);
}

/// The sums of parts are added in the order in which ranks would add them.
void Products::sum_experts(const kernels::ExpertsArgs& args, std::span<const MixturePart> parts,
                           const LinearWeight* from_latents, size_t depth) {
  kernels::ExpertsArgs own = args;
  if (parts.size() == 1) {
    const MixturePart& part = parts.front();
    own.experts = part.experts;
    if (from_latents != nullptr)
      own.y = latent_sums_.tensor(DType::fp32, {args.y.rows(), from_latents->in()});
    compute_.backend.experts(own, compute_.stream);
    if (from_latents != nullptr) {
      const LinearWeight::Part& all = from_latents->parts.front();
      compute_.backend.linear({own.y, all.weight, all.bias, args.y, Accumulate::no, row_invariant_,
                               1, all.scales, kernels::SameX::no, all.factor},
                              compute_.stream);
    }
    if (const LinearWeight::Part& down = part.shared_down; down.weight)
      compute_.backend.linear({part.activated, down.weight, down.bias, args.y, Accumulate::yes,
                               row_invariant_, 1, down.scales, kernels::SameX::no, down.factor},
                              compute_.stream);
    return;
  }
  const size_t left = std::bit_floor(parts.size() - 1);
  const TensorView right = expert_sums_[depth].tensor(DType::fp32, {args.y.rows(), args.y.size(1)});
  sum_experts(args, parts.first(left), from_latents, depth + 1);
  own.y = right;
  sum_experts(own, parts.subspan(left), from_latents, depth + 1);
  compute_.backend.add({right, args.y}, compute_.stream);
}

void Products::norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                    const TensorView& marks, int32_t mark) {
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  compute_.backend.rms_norm({x, weight, norm_eps_, out, marks, mark}, compute_.stream);
}

void Products::norm_scaled(const TensorView& x, double factor, const TensorView& weight,
                           const TensorView& out) {
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  const auto eps = static_cast<float>(double{norm_eps_} / (factor * factor));
  compute_.backend.rms_norm({x, weight, eps, out}, compute_.stream);
}

void Products::soft_cap(const TensorView& x, float cap) {
  const ScopedSpan span(compute_.recorder, "soft_cap", Kind::compute);
  compute_.backend.soft_cap({x, cap}, compute_.stream);
}

void Products::norm_latents(const TensorView& x, const TensorView& weight, const TensorView& out) {
  constexpr float eps = 1e-6f;
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  compute_.backend.rms_norm({x, weight, eps, out}, compute_.stream);
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
