// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The feed-forward of a layer with experts: each row takes the experts that the router gives it the
/// highest logits for.
///
///     Σ_e w_e · down_e · (activation(gate_e · x) ∘ up_e · x)          w = weights by kernels::route
///
/// or with w_e · x in place of x and 1 in place of w_e (ExpertsConfig::weighed). With
/// ExpertsConfig::latent, x here are latents that to_latents makes of the row, and from_latents
/// multiplies the sum; latents travel to experts that are dealt out, and back.
/// A rank has a part of each expert, or some experts whole (ranks/parallel/expert_routes.hpp). Where
/// there is a shared expert, every row takes it with weight 1, at the rank that has the row
/// (CutUnit::shared_ffn).

#include "lib/model/layers/expert_exchange.hpp"
#include "lib/model/layers/gated_ffn.hpp"
#include "lib/model/layers/products.hpp"
#include "lib/model/weights/tensor_parallel.hpp"

namespace pecia::model {

class Mixture {
 public:
  /// All references outlive this object. `ffn` computes what the shared expert activates.
  Mixture(const ModelConfig& config, const attention::ReplicaGroups& groups,
          const attention::Compute& compute, Products& products, TensorParallel& tensor,
          GatedFfn& ffn);

  /// Begins a pass of `num_rows` rows, which `tensor` has begun.
  void begin_pass(parallel::Sharding sharding, int64_t num_rows);
  /// See TensorParallel::go_on_with.
  void go_on_with(std::span<const int64_t> some);

  /// Whether the host waits for the device in each layer of the pass.
  bool waits_for_device() const { return rows_of_peers_.size() > 1; }

  /// Collective over the rank's block: starts adding the result of the block's rows to `hidden`
  /// (TensorParallel::add_product, which also says what `change` is). `rows` is [rows, hidden], as
  /// products take them, and `routed` what the router sees of them. Every rank chooses by the whole
  /// router, so ranks with the same rows choose the same experts.
  void run(const MixtureWeights& weights, int block, const TensorView& rows,
           const TensorView& routed, const TensorView& hidden,
           const TensorParallel::Change& change);

 private:
  void choose(const MixtureWeights& weights, const TensorView& rows);
  /// `shared`: the part of the shared expert that is added; none in place of an absent one.
  TensorView inputs(const MixtureWeights& weights, const TensorView& rows);
  void multiply(const MixtureWeights& weights, const ExpertExchange::Arrived& rows,
                const LinearWeight* from_latents, const Products::SharedExpert& shared,
                const TensorView& to, kernels::Accumulate accumulate);
  void multiply_with_peers(const MixtureWeights& weights, int block, const TensorView& rows,
                           const TensorView& to, kernels::Accumulate accumulate);

  const ModelConfig& config_;
  const attention::ReplicaGroups& groups_;
  attention::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  GatedFfn& ffn_;
  ExpertExchange exchange_;
  device::Buffer logits_, chosen_, weights_, sums_, latents_, latent_sums_;
  TensorView chosen_of_rows_, weights_of_rows_;
  std::vector<parallel::ShardedRows> rows_of_peers_;  ///< of the pass; one or none: none travel
};

}  // namespace pecia::model
