// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How the keys of an attention call are made from latents (ranks/parallel/latent_rule.hpp): in tiles of
/// so few tokens that keys and values of all heads fit into a bounded memory, each of which is
/// attended before the next one is made.

#include <span>
#include <vector>

#include "kernels/api/attention.hpp"
#include "lib/ranks/parallel/heads.hpp"

namespace pecia::attention {

/// Makes keys and values of heads.
class LatentExpander {
 public:
  LatentExpander() = default;
  LatentExpander(const LatentExpander&) = delete;
  LatentExpander& operator=(const LatentExpander&) = delete;
  virtual ~LatentExpander() = default;

  /// `latents` are [tokens, kv_rank + rope_dim] as they are cached, fp32 or bf16. `heads` are of the
  /// model. k is [heads, tokens, query_dim], dense, of the type of the latents, and is written; v
  /// likewise, but only the first value_dim numbers of each vector are written.
  virtual void expand(const TensorView& latents, parallel::HeadRange heads, const TensorView& k,
                      const TensorView& v) = 0;
};

/// The most bytes of keys and values that are made at a time. GPUs want long products; not measured.
constexpr int64_t most_expanded_bytes(bool on_gpus) {
  return int64_t{on_gpus ? 256 : 32} << 20;
}

struct LatentTile {
  std::vector<kernels::AttentionItem> items;  ///< of the call, with the tile's runs
  std::vector<kernels::KeyRun> runs;          ///< where the latents are
  int64_t tokens = 0;                         ///< of these runs
  /// Its items have seen no keys of the call. Otherwise there is one item, which goes on.
  bool begins = true;
};

/// Cuts a call with these rows' positions into tiles. Keys that no row of their item sees are left
/// out, and so are items without rows. `latent_dim`: elements from one key to the next.
std::vector<LatentTile> latent_tiles(std::span<const int64_t> positions,
                                     std::span<const kernels::AttentionItem> items,
                                     std::span<const kernels::KeyRun> runs, int64_t latent_dim,
                                     int64_t most_tokens);

}  // namespace pecia::attention
