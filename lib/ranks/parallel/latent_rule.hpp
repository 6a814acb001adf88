// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides in which of its two equal forms a pass attends latents (latent attention, MLA): absorbed,
/// where all heads attend the latents themselves, or expanded, where each rank first makes keys and
/// values of every head from the latents of the keys that it attends. For each head, in multiplications:
///
///                absorbed                              expanded
///     a pair     2 · kv_rank + rope_dim                nope_dim + rope_dim + value_dim
///     a row      (nope_dim + value_dim) · kv_rank      –
///     a key      –                                     (nope_dim + value_dim) · kv_rank
///
/// Where keys travel, every rank of the ring expands all of them. So prompts are expanded unless few rows
/// see many keys, and answers never are. Source: DeepSeek-V2, §2.1 and appendix C.

#include <cstdint>

namespace pecia::parallel {

/// Sizes of a head; LatentConfig says what they are.
struct LatentHead {
  int64_t kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;

  int64_t query_dim() const { return nope_dim + rope_dim; }
  int64_t key_dim() const { return kv_rank + rope_dim; }
  double absorbed_per_pair() const { return static_cast<double>(key_dim() + kv_rank); }
  double expanded_per_pair() const { return static_cast<double>(query_dim() + value_dim); }
  double per_row_or_key() const { return static_cast<double>((nope_dim + value_dim) * kv_rank); }
};

/// What a pass attends, all ranks together.
struct LatentLoad {
  double rows = 0, keys = 0, pairs = 0;

  /// A sequence with this number of new tokens after cached ones.
  void add(int64_t new_tokens, int64_t cached_tokens);
};

/// Whether a pass is attended expanded. `ranks`: that share its tokens; `keys_travel`: each of them gets
/// all keys, and not only those that it holds.
bool expands_latents(const LatentHead& head, const LatentLoad& load, int ranks, bool keys_travel);

}  // namespace pecia::parallel
