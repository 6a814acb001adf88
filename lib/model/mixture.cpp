// SPDX-License-Identifier: Apache-2.0
#include "lib/model/mixture.hpp"

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

Mixture::Mixture(const ModelConfig& config, const context::Compute& compute, Products& products,
                 TensorParallel& tensor)
    : config_(config),
      compute_(compute),
      products_(products),
      tensor_(tensor),
      logits_(compute.buffer()),
      chosen_(compute.buffer()),
      weights_(compute.buffer()) {}

void Mixture::choose(const LinearWeight& router, const TensorView& rows) {
  const ExpertsConfig& experts = config_.experts.value();
  const TensorView logits = logits_.tensor(DType::fp32, {rows.rows(), experts.count});
  products_.linear("router", rows, router, logits);
  chosen_of_rows_ = chosen_.tensor(DType::int32, {rows.rows(), experts.per_token});
  weights_of_rows_ = weights_.tensor(DType::fp32, {rows.rows(), experts.per_token});
  const ScopedSpan span(compute_.recorder, "route", Kind::compute);
  compute_.backend.route({logits, chosen_of_rows_, weights_of_rows_, experts.routing},
                         compute_.stream);
}

void Mixture::run(const MixtureWeights& weights, int block, const TensorView& rows,
                  const TensorView& hidden, const TensorParallel::Change& change) {
  choose(weights.router, rows);
  const auto multiply = [&](const TensorView& to, Accumulate accumulate) {
    products_.experts({.x = rows,
                       .chosen = chosen_of_rows_,
                       .weights = weights_of_rows_,
                       .experts = {},
                       .y = to,
                       .activation = config_.activation},
                      weights.experts, accumulate, products_.splits_of_part(tensor_.cut().count));
  };
  tensor_.add_product(block, hidden, multiply, change);
}

}  // namespace pecia::model
