// SPDX-License-Identifier: Apache-2.0
#pragma once
/// `reproducible: layout`: bits that depend neither on how a replica's ranks are laid out, CP × SP
/// × TP in any modes, nor on what else is in a pass. They do follow from the model, from
/// max_batch_tokens, by which long prompts are cut, from kv.dtype and from the vector instructions
/// or the kind of GPU; and a turn that an earlier run left half answered is fed again as one piece,
/// which may change its last bits.
///
/// CP: every pass is cut, and every sum over keys is made, as a ring of 8 virtual ranks would do
/// it. N real ranks, N dividing 8, play 8/N of them each:
///
///     N = 2     rank 0 plays 0 1 2 3, rank 1 plays 4 5 6 7
///
/// A prompt's chunk is cut into 16 segments; virtual rank v owns segments v and 15 − v. Each
/// virtual rank makes one partial result of attention from all the keys it owns, in the order they
/// were cached, and the 8 are merged along one binary tree (merge_tree.hpp), of which a real rank
/// plays a whole subtree.
///
/// TP: the sums that it cuts, over the heads' columns of o and the FFN's of down, are made in
/// layout_splits parts, which are added as the leaves of a binary tree (kernels::LinearArgs); of
/// its ranks, too, each has a subtree. SP moves rows and heads, whose bits are their own.

#include <cstdint>
#include <numeric>

namespace pecia::parallel {

inline constexpr int layout_ranks = 8;  ///< virtual ranks of the mode

constexpr bool can_play_layout(int num_ranks) {
  return num_ranks >= 1 && layout_ranks % num_ranks == 0;
}

/// Parts of the sums that TP cuts, for a model's query heads and FFN columns: weights can be cut in
/// any number that divides it.
///
///     32 heads, 14336 columns     8         12 heads, 48 columns     4         9 heads     1
constexpr int layout_splits(int64_t num_heads, int64_t ffn) {
  return static_cast<int>(std::gcd(std::gcd(num_heads, ffn), int64_t{layout_ranks}));
}

/// Which of `num_ranks` plays a virtual rank.
constexpr int player_of(int virtual_rank, int virtual_ranks, int num_ranks) {
  return virtual_rank / (virtual_ranks / num_ranks);
}

/// The virtual rank that owns a generated token. Tokens in a row go round the real ranks, whatever
/// their number: the low bits of (position + shift) decide first.
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

}  // namespace pecia::parallel
