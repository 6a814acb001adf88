// SPDX-License-Identifier: Apache-2.0
#pragma once
/// With `reproducible: layout` the bits of a result depend neither on how a replica's ranks are
/// laid out, CP × SP × TP in any modes, nor on what else is in a pass. They do depend on the model,
/// on max_batch_tokens, by which long prompts are cut, on kv.dtype, on model.compute, and on the
/// vector instructions or the kind of GPU. A turn that an earlier run left half answered is fed
/// again as one piece, which may change its last bits.
///
/// CP: every pass is cut, and every sum over keys is made, as a ring of 8 virtual ranks would do
/// it. N divides 8, and each of N real ranks plays 8/N of them:
///
///     N = 2     rank 0 plays 0 1 2 3, rank 1 plays 4 5 6 7
///
/// A prompt's chunk is cut into 16 segments. Virtual rank v owns segments v and 15 − v. Each
/// virtual rank makes one partial result of attention from all the keys it owns, in the order in
/// which they were cached. The 8 results are merged along one binary tree (merge_tree.hpp). A real
/// rank plays a whole subtree of it.
///
/// TP: it cuts the sums over the heads' columns of o and over the FFN's columns of down. These sums
/// are made in layout_splits parts. The parts are added as the leaves of a binary tree
/// (kernels::LinearArgs). Each TP rank has one subtree, too.
///
/// SP: it moves rows and heads, and the bits of each do not depend on the others.

#include <cstdint>
#include <numeric>

namespace pecia::parallel {

inline constexpr int layout_ranks = 8;  ///< virtual ranks of the mode

constexpr bool can_play_layout(int num_ranks) {
  return num_ranks >= 1 && layout_ranks % num_ranks == 0;
}

/// Returns the number of parts of the sums that TP cuts, for a model's query heads and FFN columns.
/// Weights can be cut into any number of parts that divides it.
///
///     32 heads, 14336 columns     8         12 heads, 48 columns     4         9 heads     1
constexpr int layout_splits(int64_t num_heads, int64_t ffn) {
  return static_cast<int>(std::gcd(std::gcd(num_heads, ffn), int64_t{layout_ranks}));
}

/// Returns the one of `num_ranks` ranks that plays a virtual rank.
constexpr int player_of(int virtual_rank, int virtual_ranks, int num_ranks) {
  return virtual_rank / (virtual_ranks / num_ranks);
}

/// Returns the virtual rank that owns a generated token. Tokens in a row go round the real ranks,
/// whatever their number: the low bits of (position + shift) decide first.
///
///     position + shift   0 1 2 3 4 5 6 7
///     owner              0 4 2 6 1 5 3 7
///     its rank, N = 2    0 1 0 1 0 1 0 1
///
/// `shift` keeps sequences of one length from meeting on one rank. It must follow from the request
/// alone.
constexpr int32_t generated_owner(int64_t position, int64_t shift) {
  const auto lane = static_cast<int32_t>((position + shift) % layout_ranks);
  return (lane & 1) << 2 | (lane & 2) | lane >> 2;
}

/// Returns the virtual rank that owns the token `later` places after one that `owner` owns.
constexpr int32_t owner_after(int32_t owner, int64_t later) {
  return generated_owner(later,
                         generated_owner(owner, 0));  // which turns a lane into its owner and back
}

}  // namespace pecia::parallel
