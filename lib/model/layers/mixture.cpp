// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/mixture.hpp"

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

Mixture::Mixture(const ModelConfig& config, const attention::ReplicaGroups& groups,
                 const attention::Compute& compute, Products& products, TensorParallel& tensor,
                 GatedFfn& ffn)
    : config_(config),
      groups_(groups),
      compute_(compute),
      products_(products),
      tensor_(tensor),
      ffn_(ffn),
      exchange_(compute, groups.wire),
      logits_(compute.buffer()),
      chosen_(compute.buffer()),
      weights_(compute.buffer()),
      sums_(compute.buffer()),
      latents_(compute.buffer()),
      latent_sums_(compute.buffer()) {}

void Mixture::begin_pass(parallel::Sharding sharding, int64_t num_rows) {
  rows_of_peers_.clear();
  if (!tensor_.cut().deals_experts()) return;
  std::vector<parallel::RowRange> held;
  for (const parallel::BlockPlace& peer : expert_peers(sharding, groups_.place)) {
    rows_of_peers_.push_back(sharded_rows(sharding, peer, num_rows));
    held.push_back(held_experts(config_.experts.value().count, weight_cut(sharding, peer)));
  }
  if (held.size() == 1) return;
  const bool of_block = sharding == parallel::Sharding::gathered;
  exchange_.begin_pass(of_block ? *groups_.block : *groups_.sp, std::move(held));
}

void Mixture::go_on_with(std::span<const int64_t> some) {
  for (parallel::ShardedRows& rows : rows_of_peers_) rows = rows.part_of(some);
}

void Mixture::choose(const MixtureWeights& weights, const TensorView& rows) {
  const ExpertsConfig& experts = config_.experts.value();
  const TensorView logits = logits_.tensor(DType::fp32, {rows.rows(), experts.count});
  products_.linear("router", rows, weights.router, logits);
  chosen_of_rows_ = chosen_.tensor(DType::int32, {rows.rows(), experts.per_token});
  weights_of_rows_ = weights_.tensor(DType::fp32, {rows.rows(), experts.per_token});
  const ScopedSpan span(compute_.recorder, "route", Kind::compute);
  compute_.backend.route({logits, chosen_of_rows_, weights_of_rows_, experts.routing,
                          weights.choice_bias, experts.sigmoid, weights.expert_scales},
                         compute_.stream);
}

/// What experts see of the rows.
TensorView Mixture::inputs(const MixtureWeights& weights, const TensorView& rows) {
  if (!weights.to_latents) return rows;
  const TensorView latents =
      latents_.tensor(products_.result_type(rows.rows()), {rows.rows(), weights.to_latents->out()});
  products_.linear("to_latents", rows, *weights.to_latents, latents);
  return latents;
}

void Mixture::multiply(const MixtureWeights& weights, const ExpertExchange::Arrived& rows,
                       const LinearWeight* from_latents, const Products::SharedExpert& shared,
                       const TensorView& to, Accumulate accumulate) {
  const int64_t count = config_.experts.value().count;
  const parallel::WeightCut cut = tensor_.cut();
  kernels::ExpertsArgs args{.x = rows.rows,
                            .chosen = rows.chosen,
                            .weights = rows.weights,
                            .experts = {},
                            .y = to,
                            .activation = config_.activation,
                            .weighed = config_.experts->weighed,
                            .first_expert = held_experts(count, cut).begin,
                            .count = count};
  if (waits_for_device()) args.pairs = rows.pairs;
  const int parts = cut.deals_experts() ? 1 : cut.count;
  products_.experts(args, weights.experts, from_latents, shared, accumulate,
                    products_.splits_of_part(parts));
}

void Mixture::multiply_with_peers(const MixtureWeights& weights, int block, const TensorView& rows,
                                  const TensorView& to, Accumulate accumulate) {
  std::vector<int64_t> counts;
  for (const parallel::ShardedRows& of_peer : rows_of_peers_)
    counts.push_back(of_peer.blocks[block].size());
  const TensorView own = inputs(weights, rows);
  const auto arrived = exchange_.send(own, chosen_of_rows_, weights_of_rows_, counts);
  const TensorView sums = sums_.tensor(DType::fp32, {arrived.rows.rows(), own.size(1)});
  multiply(weights, arrived, nullptr, {}, sums, Accumulate::no);
  if (weights.from_latents) {
    const TensorView latents = latent_sums_.tensor(DType::fp32, {rows.rows(), own.size(1)});
    exchange_.bring_back(sums, latents, Accumulate::no);
    products_.linear("from_latents", latents, *weights.from_latents, to, accumulate);
  } else {
    exchange_.bring_back(sums, to, accumulate);
  }
  if (weights.shared)  // of the own rows
    products_.linear("down_proj", ffn_.activate(*weights.shared, rows), weights.shared->down, to,
                     Accumulate::yes);
}

void Mixture::run(const MixtureWeights& weights, int block, const TensorView& rows,
                  const TensorView& routed, const TensorView& hidden,
                  const TensorParallel::Change& change) {
  choose(weights, routed);
  const auto product = [&](const TensorView& to, Accumulate accumulate) {
    if (waits_for_device()) return multiply_with_peers(weights, block, rows, to, accumulate);
    Products::SharedExpert shared;
    if (weights.shared) shared = {ffn_.activate(*weights.shared, rows), &weights.shared->down};
    const LinearWeight* const back = weights.from_latents ? &*weights.from_latents : nullptr;
    multiply(weights, {inputs(weights, rows), chosen_of_rows_, weights_of_rows_}, back, shared, to,
             accumulate);
  };
  tensor_.add_product(block, hidden, product, change);
}

}  // namespace pecia::model
