// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/gated_ffn.hpp"

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

GatedFfn::GatedFfn(const ModelConfig& config, const attention::Compute& compute, Products& products,
                   TensorParallel& tensor)
    : activation_(config.activation),
      compute_(compute),
      products_(products),
      tensor_(tensor),
      gate_(compute.buffer()),
      up_(compute.buffer()),
      activated_(compute.buffer()),
      row_gate_(compute.buffer()) {}

void GatedFfn::run(const GatedFfnWeights& weights, int block, const TensorView& rows,
                   const TensorView& hidden, const TensorParallel::Change& change) {
  const TensorView activated = activate(weights, rows);
  const auto multiply = [&](const TensorView& to, Accumulate accumulate) {
    products_.linear("down_proj", activated, weights.down, to, accumulate,
                     products_.splits_of_part(tensor_.cut().count));
  };
  tensor_.add_product(block, hidden, multiply, change, products_.result_type(rows.rows()));
}

TensorView GatedFfn::activate(const GatedFfnWeights& weights, const TensorView& rows) {
  const int64_t width = weights.up.out();
  const DType operand = products_.operand_type();
  const bool narrow = operand != DType::fp32;
  const TensorView narrow_out =
      narrow ? activated_.tensor(operand, {rows.rows(), width}) : TensorView();
  if (weights.xielu) return curve(weights, rows, narrow_out);
  if (narrow && !weights.row_gate && products_.gated(rows, weights, activation_, narrow_out))
    return narrow_out;
  const DType product = weights.row_gate ? DType::fp32 : products_.result_type(rows.rows());
  TensorView gate, up;
  if (!weights.has_gate) {
    gate = up = up_.tensor(product, {rows.rows(), width});
    products_.linear("up_proj", rows, weights.up, up);
  } else if (const auto both = products_.joined({&weights.gate, &weights.up})) {
    const TensorView products = gate_.tensor(product, {rows.rows(), 2 * width});
    gate = products.slice_columns(0, width), up = products.slice_columns(width, width);
    products_.linear("gate_up_proj", rows, *both, products);
  } else {
    gate = gate_.tensor(product, {rows.rows(), width});
    up = up_.tensor(product, {rows.rows(), width});
    products_.linear("gate_proj", rows, weights.gate, gate);
    products_.linear_of_same_x("up_proj", rows, weights.up, up);
  }
  if (weights.row_gate) {
    const TensorView scores = row_gate_.tensor(DType::fp32, {rows.rows(), 1});
    products_.linear("shared_row_gate", rows, *weights.row_gate, scores);
    const ScopedSpan span(compute_.recorder, "row_gate", Kind::compute);
    compute_.backend.gated_activation({scores, up, up, kernels::Activation::sigmoid},
                                      compute_.stream);
  }
  const TensorView activated = narrow ? narrow_out : gate;
  const ScopedSpan span(compute_.recorder, "swiglu", Kind::compute);
  compute_.backend.gated_activation({gate, up, activated, activation_}, compute_.stream);
  return activated;
}

TensorView GatedFfn::curve(const GatedFfnWeights& weights, const TensorView& rows,
                           const TensorView& narrow_out) {
  const TensorView up = up_.tensor(DType::fp32, {rows.rows(), weights.up.out()});
  products_.linear("up_proj", rows, weights.up, up);
  const TensorView activated = narrow_out ? narrow_out : up;
  const ScopedSpan span(compute_.recorder, "xielu", Kind::compute);
  compute_.backend.xielu({up, activated, *weights.xielu}, compute_.stream);
  return activated;
}

}  // namespace pecia::model
