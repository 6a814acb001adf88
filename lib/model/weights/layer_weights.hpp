// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One layer's weights, whole or cut for tensor parallelism. They are always views of one resident
/// copy.
///
///     layer = norm → mixer → norm → add → norm → feed-forward → norm → add
///
/// A family has the norms before the two blocks, the norms after them, or both.
///
/// A layer may have one of both blocks alone.
///
/// When weights are cut in `count` parts, part `index` has the query heads and KV heads of
/// head_shard and the same part of the FFN's columns. It holds the rows of q, k, v, gate and up
/// that produce them, and the columns of o and down that consume them (matrix_role.hpp). Each expert
/// is cut like a dense FFN, or experts are dealt out whole (ranks/parallel/expert_routes.hpp).

#include <array>
#include <optional>
#include <vector>

#include "kernels/api/xielu.hpp"
#include "lib/model/weights/matrix_role.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::model {

/// What latent attention has beside q and o (LatentConfig).
struct LatentWeights {
  std::optional<LinearWeight> q_down = {};  ///< [q_rank, hidden]; absent: q takes x itself
  LinearWeight kv_down;                     ///< [kv_rank + rope_dim, hidden]
  LinearWeight key_up;                      ///< [heads × kv_rank, nope_dim]
  LinearWeight value_up;                    ///< [heads × value_dim, kv_rank]
  LinearWeight head_keys;  ///< [heads × nope_dim, kv_rank]: key_up has the transposes
};

/// The weights of the mixer, which is attention.
struct AttentionWeights {
  /// Whole on every rank: [head_dim], [heads × head_dim] if all heads are normed together, with
  /// latents [q_rank] and [kv_rank], or absent.
  TensorView q_norm, k_norm;
  TensorView v_norm = {};  ///< ones [head_dim], where values are normed without a weight, or absent
  TensorView sinks;        ///< [heads], whole on every rank, or absent
  LinearWeight q, k, v, o;  ///< heads × head_dim rows in head order; o: [hidden, heads × head_dim]
  std::optional<LatentWeights> latent = {};  ///< in place of k and v; q has query_dim rows a head
  std::optional<LinearWeight> gate = {};     ///< rows as q
  bool has_keys = true, has_values = true;   ///< false: there is no k, and no v (ModelConfig)

  template <typename F>
  void for_each_matrix(const F& f) {
    if (latent && latent->q_down) f(MatrixKind::q_down, *latent->q_down);
    f(MatrixKind::q, q);
    if (latent) {
      f(MatrixKind::kv_down, latent->kv_down), f(MatrixKind::key_up, latent->key_up);
      f(MatrixKind::value_up, latent->value_up), f(MatrixKind::head_keys, latent->head_keys);
    } else {
      if (has_keys) f(MatrixKind::k, k);
      if (has_values) f(MatrixKind::v, v);
    }
    if (gate) f(MatrixKind::attention_gate, *gate);
    f(MatrixKind::o, o);
  }
};

/// The weights of the mixer where it is a recurrence (RecurrentConfig). Part `index` of `count` has
/// the heads and key heads of head_shard, as attention has query heads and KV heads.
struct RecurrentWeights {
  bool corrects = true;     ///< RecurrentConfig::corrects
  LinearWeight q, k, v, z;  ///< key_heads × key_dim and heads × value_dim rows in head order
  LinearWeight a;           ///< [heads, hidden]: what makes the decay; Mamba-2: Δ
  LinearWeight b;           ///< [heads, hidden]: what makes the strength; Mamba-2 has none
  LinearWeight o;           ///< [hidden, heads × value_dim]
  TensorView q_conv, k_conv, v_conv;  ///< [channels, conv_rows] fp32: of the rows of q, k and v
  TensorView q_conv_bias, k_conv_bias, v_conv_bias;  ///< [channels] fp32, or absent
  TensorView rate;                                   ///< [heads] fp32: −exp(A)
  TensorView step_bias;                              ///< [heads] fp32: added to a
  TensorView skip;  ///< [heads] fp32: D; absent: the delta net has none
  TensorView norm;  ///< fp32 [value_dim] of each head; Mamba-2: [heads × value_dim]

  template <typename F>
  void for_each_matrix(const F& f) {
    if (corrects) {
      f(MatrixKind::recurrent_q, q), f(MatrixKind::recurrent_k, k), f(MatrixKind::recurrent_v, v);
      f(MatrixKind::recurrent_z, z), f(MatrixKind::recurrent_b, b);
    } else {  // in the order in which they are one tensor
      f(MatrixKind::recurrent_z, z), f(MatrixKind::recurrent_v, v);
      f(MatrixKind::recurrent_k, k), f(MatrixKind::recurrent_q, q);
    }
    f(MatrixKind::recurrent_a, a), f(MatrixKind::recurrent_o, o);
  }
  /// Calls f(unit, vector) for every vector that is cut. The others are whole on every rank.
  template <typename F>
  void for_each_cut_vector(const F& f) {
    const auto visit = [&](CutUnit unit, std::initializer_list<TensorView*> vectors) {
      for (TensorView* vector : vectors)
        if (*vector) f(unit, *vector);
    };
    visit(CutUnit::recurrent_keys, {&q_conv, &k_conv, &q_conv_bias, &k_conv_bias});
    visit(CutUnit::recurrent_values, {&v_conv, &v_conv_bias});
    visit(CutUnit::recurrent_heads, {&rate, &step_bias, &skip});
    if (!corrects) visit(CutUnit::recurrent_values, {&norm});
  }
  std::array<TensorView*, 10> vectors() {
    return {&q_conv,      &k_conv, &v_conv,    &q_conv_bias, &k_conv_bias,
            &v_conv_bias, &rate,   &step_bias, &skip,        &norm};
  }
};

/// The weights of the feed-forward: down · (activation(gate · x) ∘ up · x). Without a gate it is
/// down · xielu(up · x), or up · x is in its place, too.
struct GatedFfnWeights {
  LinearWeight gate, up, down;
  bool has_gate = true;
  std::optional<kernels::XieluCurve> xielu = {};  ///< in place of a gate; whole on every rank
  /// [1, hidden]: sigmoid(row_gate · x) multiplies the result; whole on every rank.
  std::optional<LinearWeight> row_gate = {};
};

/// The weights of a mixture: logits of the experts are router · x, and each expert is a gated FFN.
struct MixtureWeights {
  LinearWeight router;
  std::vector<GatedFfnWeights> experts;  ///< all, or those that are dealt out to the rank
  /// Where experts work on latents: [latent, hidden] and [hidden, latent], whole on every rank.
  std::optional<LinearWeight> to_latents = {}, from_latents = {};
  std::optional<GatedFfnWeights> shared = {};  ///< the expert that every row takes, with weight 1
  TensorView choice_bias = {};                 ///< RouteArgs::bias, whole on every rank, or absent
  /// With ModelConfig::dense_beside_experts: RouteArgs::scales, and the norms [hidden] of what the
  /// router and the experts see, and of what the dense feed-forward and the experts make.
  TensorView expert_scales = {}, router_norm = {}, before = {}, after_dense = {}, after = {};
};

/// Of SecondEmbedding, whole on every rank.
struct SecondWeights {
  LinearWeight gate, up;  ///< [width, hidden], [hidden, width]
  TensorView norm;        ///< [hidden]
};

struct LayerWeights {
  TensorView attention_norm, ffn_norm;            ///< [hidden], or absent
  TensorView post_attention_norm, post_ffn_norm;  ///< [hidden], or absent
  bool has_attention = true;                      ///< false: `attention` is empty
  AttentionWeights attention;
  std::optional<RecurrentWeights> recurrent = {};  ///< in its place
  bool has_ffn = true;                             ///< false: `ffn` is empty
  GatedFfnWeights ffn;
  MixtureWeights mixture;  ///< empty if the feed-forward is dense alone
  std::optional<SecondWeights> second = {};
  float scale = 1;  ///< multiplies hidden states after the layer

  /// All norms with weights that are stored, those that are absent, too.
  std::vector<TensorView*> norms() {
    std::vector<TensorView*> all = {
        &attention_norm,   &ffn_norm,       &post_attention_norm, &post_ffn_norm, &attention.q_norm,
        &attention.k_norm, &mixture.before, &mixture.after_dense, &mixture.after};
    if (second) all.push_back(&second->norm);
    return all;
  }
  /// Vectors that are made or widened, and stay as they are.
  std::vector<TensorView*> made() {
    std::vector<TensorView*> all = {&attention.v_norm, &mixture.choice_bias, &mixture.expert_scales,
                                    &mixture.router_norm};
    if (recurrent)
      for (TensorView* vector : recurrent->vectors()) all.push_back(vector);
    return all;
  }

  /// Calls f(kind, matrix) for every matrix, in the order in which the layer uses them.
  template <typename F>
  void for_each_matrix(const F& f) {
    if (has_attention) attention.for_each_matrix(f);
    if (recurrent) recurrent->for_each_matrix(f);
    if (second) f(MatrixKind::second_gate, second->gate), f(MatrixKind::second_up, second->up);
    if (has_ffn) {
      if (ffn.has_gate) f(MatrixKind::gate, ffn.gate);
      f(MatrixKind::up, ffn.up), f(MatrixKind::down, ffn.down);
    }
    if (mixture.router.parts.empty()) return;
    f(MatrixKind::router, mixture.router);
    if (mixture.to_latents) f(MatrixKind::to_latents, *mixture.to_latents);
    for (GatedFfnWeights& expert : mixture.experts) {
      if (expert.has_gate) f(MatrixKind::expert_gate, expert.gate);
      f(MatrixKind::expert_up, expert.up), f(MatrixKind::expert_down, expert.down);
    }
    if (mixture.from_latents) f(MatrixKind::from_latents, *mixture.from_latents);
    if (!mixture.shared) return;
    if (mixture.shared->has_gate) f(MatrixKind::shared_gate, mixture.shared->gate);
    f(MatrixKind::shared_up, mixture.shared->up), f(MatrixKind::shared_down, mixture.shared->down);
    if (mixture.shared->row_gate) f(MatrixKind::shared_row_gate, *mixture.shared->row_gate);
  }
  template <typename F>
  void for_each_matrix(const F& f) const {
    const_cast<LayerWeights*>(this)->for_each_matrix(
        [&](MatrixKind kind, const LinearWeight& matrix) { f(kind, matrix); });
  }

  /// The matrix of a kind in layer_kinds.
  const LinearWeight& matrix(MatrixKind kind) const;
  LinearWeight& matrix(MatrixKind kind) {
    return const_cast<LinearWeight&>(static_cast<const LayerWeights*>(this)->matrix(kind));
  }
};

/// Cuts layer `index` that is already a part: `layer` is the part `held` of the whole layer, and the
/// result is its part `cut`. Matrices without parts stay so. `held.count` divides `cut.count`, and part `held.index` contains part
/// `cut.index`.
LayerWeights cut_layer(const LayerWeights& layer, const ModelConfig& config, int64_t index,
                       parallel::WeightCut held, parallel::WeightCut cut);

}  // namespace pecia::model
