// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A mixer with latent attention (LatentConfig). What tokens keep, and what travels of them, is one
/// row for all heads:
///
///     kv       = kv_down · x = [c | r]         c ← norm(c), r ← rotated r
///     q        = q · x or q · norm(q_down · x), [nope | rotated rope] a head, scaled
///
/// A pass is absorbed or expanded, whichever takes fewer FLOPs (ranks/parallel/latent_rule.hpp).
/// Absorbed, attention over ranks sees one KV head of kv_rank + rope_dim numbers, whose values are
/// the first kv_rank of them, and the heads' queries in this space:
///
///     query_h  = [key_up_h · nope_h | rope_h]
///     latent_h = attention of query_h
///     output   = o · [value_up_h · latent_h, …]
///
/// Expanded, it attends q as it is, and each rank makes keys [K_h c | r] and values V_h c of the
/// tokens that it attends (attention/latent_tiles.hpp):
///
///     output   = o · [attention of q_h, …]
///
/// Heads are cut over ranks, what tokens keep is not: every rank of TP computes it, and Ulysses
/// brings it to each of its ranks, as one KV head for all.

#include "lib/model/layers/kept_rows.hpp"
#include "lib/model/layers/mixer.hpp"
#include "lib/model/layers/products.hpp"

namespace pecia::model {

class LatentMixer : public Mixer, private attention::LatentExpander {
 public:
  /// All references outlive this object. `most_bytes`: of keys and values that are expanded at a time;
  /// absent: attention::most_expanded_bytes.
  LatentMixer(const ModelConfig& config, const attention::Compute& compute, Products& products,
              TensorParallel& tensor, std::optional<int64_t> most_bytes = {});

  void begin(int64_t layer, const LayerWeights& weights, int64_t num_rows,
             attention::Attention& attention) override;
  void project(int block, const Input& input, attention::Attention& attention) override;
  void mix(int64_t layer, attention::Attention& attention) override;
  void mix_block(int64_t layer, int block, attention::Attention& attention) override;
  void keep(std::span<const parallel::RowRange> places) override;
  void project_output(int block, const TensorView& hidden,
                      const TensorParallel::Change& change) override;

 private:
  void project_keys(int block, const Input& input);
  void project_queries(const Input& input, const TensorView& queries);
  void rotate(const TensorView& heads, int64_t first, const RotationTables& tables) const;
  void absorb(const TensorView& queries, const TensorView& absorbed);
  void expand(const TensorView& latents, parallel::HeadRange heads, const TensorView& k,
              const TensorView& v) override;

  const LatentConfig& latent_;
  int64_t num_heads_;  ///< of the model
  int64_t most_bytes_;
  kernels::RopePairs pairs_;
  attention::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  device::Buffer key_buffer_, down_buffer_, normed_buffer_, query_buffer_, attending_buffer_,
      mixed_buffer_, value_buffer_, wide_buffer_, head_buffer_;
  KeptRows kept_;

  std::vector<kernels::PickedRows> rotated_copies_;  ///< of a tile, for each head

  // State of the current layer.
  const AttentionWeights* weights_ = nullptr;
  int64_t heads_ = 0;  ///< that are here
  bool expanded_ = false;
  TensorView keys_;       ///< [rows, 1, key_dim]
  TensorView attending_;  ///< queries as attention takes them, [rows, heads, key_dim or query_dim]
  TensorView mixed_;      ///< [rows, heads, kv_rank or value_dim]
};

}  // namespace pecia::model
