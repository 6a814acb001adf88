// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Computes what a layer does with its rows alone: products with weights, and norms. Each is a span
/// in the trace.

#include <span>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/model/weights/linear_weight.hpp"
#include "lib/model/weights/weights.hpp"

namespace pecia::model {

/// From this number of rows on a pass is long: launches cost little beside it, and copies of its
/// tensors take memory.
inline constexpr int64_t many_rows = 128;

class Products {
 public:
  /// All references outlive this object. `ranks` is the most ranks that a layer's weights are cut
  /// over.
  Products(const ModelConfig& config, const WeightViews& weights, const attention::Compute& compute,
           kernels::RowInvariant row_invariant, int ranks);

  /// y [rows, out] = x [rows, in] · weightᵀ + bias; it is added to y if `accumulate` says so. y is
  /// fp32, or without `accumulate` of result_type. `splits` is LinearArgs::splits.
  void linear(const char* name, const TensorView& x, const LinearWeight& weight,
              const TensorView& y, kernels::Accumulate accumulate = kernels::Accumulate::no,
              int splits = 1) {
    multiply(name, x, weight, y, accumulate, splits, kernels::SameX::no);
  }
  /// The same with the x of the last product, which nothing has written to since.
  void linear_of_same_x(const char* name, const TensorView& x, const LinearWeight& weight,
                        const TensorView& y) {
    multiply(name, x, weight, y, kernels::Accumulate::no, 1, kernels::SameX::yes);
  }

  /// The shared expert of the same rows, if there is one.
  struct SharedExpert {
    TensorView activated;  ///< [rows, shared ffn], of activation(gate · x) ∘ up · x
    const LinearWeight* down = nullptr;  ///< null: there is none
  };
  /// kernels::experts by `weights`, which `args` lacks, and the shared expert; added to args.y if
  /// `accumulate` says so. `from_latents` (null: none) multiplies what the experts but the shared one
  /// make, which has its width. The experts' columns are cut into `splits` parts. Each part's results are
  /// summed over a row's experts, the shared one last, and then the parts are added as
  /// LinearArgs::splits are.
  void experts(const kernels::ExpertsArgs& args, std::span<const GatedFfnWeights> weights,
               const LinearWeight* from_latents, const SharedExpert& shared,
               kernels::Accumulate accumulate, int splits);

  /// Multiplies each head by a matrix of its own, weight [heads · out, in], with in ≤ x_dim and
  /// out ≤ y_dim: reads the first `in` numbers of each head in x [rows, heads · x_dim], and writes
  /// the first `out` numbers of each head in y [rows, heads · y_dim], fp32.
  void linear_of_heads(const char* name, const TensorView& x, const LinearWeight& weight,
                       int64_t heads, const TensorView& y);

  /// Writes activation(gate · x, up · x) to `out` [rows, ffn] operand_type by one op. Returns false,
  /// and writes nothing, where the backend has no such op or gains nothing by it.
  bool gated(const TensorView& x, const GatedFfnWeights& weights, kernels::Activation activation,
             const TensorView& out);

  /// Projections of the same rows as one, if they lie in memory so and the backend gains by it.
  std::optional<LinearWeight> joined(std::initializer_list<const LinearWeight*> projections) const {
    if (!compute_.backend.gains_by_fewer_ops()) return std::nullopt;
    return model::joined(projections);
  }

  /// LinearArgs::splits for one rank's part of a product whose `parts` parts are added (o or down).
  int splits_of_part(int parts) const { return share_of_splits(splits_, parts); }

  /// RMS norm of the rows. `marks` and `mark`: see kernels::RmsNormArgs.
  void norm(const TensorView& x, const TensorView& weight, const TensorView& out,
            const TensorView& marks = {}, int32_t mark = 0);
  /// The same of rows times `factor`, which a norm hides but for its eps.
  void norm_scaled(const TensorView& x, double factor, const TensorView& weight,
                   const TensorView& out);
  /// RMS norm of latents, whose eps no configuration changes.
  void norm_latents(const TensorView& x, const TensorView& weight, const TensorView& out);
  /// The same of hidden states, which are held divided by ModelConfig::residual_scale r. The norm
  /// is the same with eps / r².
  void norm_hidden(const TensorView& hidden, const TensorView& weight, const TensorView& out,
                   const TensorView& marks = {}, int32_t mark = 0);
  /// RMS norm, over all heads together, of the heads that are here: x [rows, heads · head_dim], in
  /// place. `squares` [rows, all heads] has the sum of squares of every head.
  void norm_of_heads(const TensorView& x, const TensorView& weight, const TensorView& squares);
  /// Writes the sums of squares of the heads in x [rows, heads, head_dim] to `sums` [rows, heads].
  void square_sums(const TensorView& x, const TensorView& sums);

  /// x ← cap · tanh(x / cap).
  void soft_cap(const TensorView& x, float cap);

  float norm_eps() const { return norm_eps_; }
  /// Type of the operands that the layers' weights multiply; fp32 when the weights have several
  /// types.
  DType operand_type() const { return operand_; }
  /// Type of products of `rows` rows that one op reads and writes in operand_type: bf16 where that
  /// saves bytes, else fp32.
  DType result_type(int64_t rows) const {
    const bool narrow =
        operand_ == DType::bf16 && rows >= many_rows && row_invariant_ == kernels::RowInvariant::no;
    return narrow && compute_.backend.rounds_products() ? operand_ : DType::fp32;
  }

 private:
  void multiply(const char* name, const TensorView& x, const LinearWeight& weight,
                const TensorView& y, kernels::Accumulate accumulate, int splits,
                kernels::SameX same_x);
  void sum_columns(const TensorView& x, std::span<const LinearWeight::Part> parts, int splits,
                   size_t depth, const TensorView& y);
  /// The parts of a mixture: of all experts, and of the shared one if there is one.
  struct MixturePart {
    std::vector<kernels::Expert> experts;
    TensorView activated;            ///< columns of SharedExpert::activated
    LinearWeight::Part shared_down;  ///< the columns of its down that take them
  };
  static std::vector<MixturePart> parts_of(std::span<const GatedFfnWeights> experts,
                                           const SharedExpert& shared, int splits);
  void sum_experts(const kernels::ExpertsArgs& args, std::span<const MixturePart> parts,
                   const LinearWeight* from_latents, size_t depth);
  static int share_of_splits(int whole, int parts) { return std::max(1, whole / parts); }

  attention::Compute compute_;
  kernels::RowInvariant row_invariant_;
  int splits_;  ///< for whole o and down; 1: sums may have any order
  float norm_eps_, hidden_eps_;
  int64_t head_dim_;
  DType operand_;
  std::vector<device::Buffer> part_sums_;    ///< by recursion depth
  std::vector<device::Buffer> expert_sums_;  ///< of parts of experts, by recursion depth
  device::Buffer latent_sums_;               ///< of a part of experts, in their latents
};

}  // namespace pecia::model
