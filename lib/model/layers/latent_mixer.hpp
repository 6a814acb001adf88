// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A mixer with latent attention (LatentConfig), absorbed in every pass: attention over ranks sees
/// one KV head of kv_rank + rope_dim numbers, whose values are the first kv_rank of them, and the
/// heads' queries in this space.
///
///     kv       = kv_down · x = [c | r]         c ← norm(c), r ← rotated r: a token's row
///     q        = q · x or q · norm(q_down · x), [nope | rotated rope] a head, scaled
///     query_h  = [key_up_h · nope_h | rope_h]
///     latent_h = attention of query_h
///     output   = o · [value_up_h · latent_h, …]
///
/// A pair of a query and a key takes 2 · heads · (2 · kv_rank + rope_dim) FLOPs, against
/// 2 · heads · (nope_dim + rope_dim + value_dim) with keys and values of every head: 3.4 times as
/// many for DeepSeek-V3 (1088 against 320). In return nothing is expanded: no rank needs keys or
/// values of heads, whatever travels. Heads are cut over ranks, what tokens keep is not: every rank
/// of TP computes it, and Ulysses brings it to each of its ranks, as one KV head for all.

#include "lib/model/layers/mixer.hpp"
#include "lib/model/layers/products.hpp"

namespace pecia::model {

class LatentMixer : public Mixer {
 public:
  /// All references outlive this object.
  LatentMixer(const ModelConfig& config, const attention::Compute& compute, Products& products,
              TensorParallel& tensor);

  void begin(int64_t layer, const AttentionWeights& weights, int64_t num_rows,
             attention::Attention& attention) override;
  void project(int block, const Input& input, attention::Attention& attention) override;
  void mix(int64_t layer, attention::Attention& attention) override;
  void project_output(int block, const TensorView& hidden,
                      const TensorParallel::Change& change) override;

 private:
  void project_keys(int block, const Input& input);
  TensorView project_queries(const Input& input);
  void rotate(const TensorView& heads, int64_t first, const RotationTables& tables) const;
  void absorb(const TensorView& queries, const TensorView& absorbed);

  const LatentConfig& latent_;
  kernels::RopePairs pairs_;
  attention::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  device::Buffer key_buffer_, down_buffer_, normed_buffer_, query_buffer_, absorbed_buffer_,
      mixed_buffer_, value_buffer_;

  // State of the current layer.
  const AttentionWeights* weights_ = nullptr;
  int64_t heads_ = 0;    ///< that are here
  TensorView keys_;      ///< [rows, 1, key_dim]
  TensorView absorbed_;  ///< [rows, heads, key_dim]
  TensorView mixed_;     ///< [rows, heads, kv_rank]
};

}  // namespace pecia::model
