// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ring context parallelism as values: who holds which tokens, and what a rank sees at each step.
/// Nothing here communicates. lib/model/attention executes these values.
/// Source: Context Parallelism for Scalable Million-Token Inference, §3.5.1 (sharding), Alg. 2
/// (pass-KV).

#include <array>

#include "lib/ranks/parallel/ranges.hpp"

namespace pecia::parallel {

/// Returns the two of 2N equal chunks that `rank` of `num_ranks` owns. They are C[rank] and
/// C[2N-1-rank], so that all ranks do the same causal work. The last chunks may be short or empty,
/// because padding is never owned.
///
///     8 tokens on 2 ranks     rank 0: [0,2) [6,8)     rank 1: [2,4) [4,6)
///     5 tokens on 2 ranks     rank 0: [0,2) [5,5)     rank 1: [2,4) [4,5)
std::array<GlobalRange, 2> owned_chunks(int64_t num_tokens, int num_ranks, int rank);

/// Does the same with the cuts of `virtual_ranks` ranks, which is a multiple of num_ranks. Each
/// rank owns the chunks of all virtual ranks that it plays (virtual_ranks.hpp). They lie next to
/// each other.
///
///     20 tokens cut for 4 ranks, chunks of 3
///     on 2 ranks     rank 0: [0,6) [18,20)     rank 1: [6,12) [12,18)
std::array<GlobalRange, 2> owned_chunks(int64_t num_tokens, int num_ranks, int rank,
                                        int virtual_ranks);

/// Returns the most tokens that any rank owns. A cache must have room for them on every rank.
int64_t max_owned_tokens(int64_t num_tokens, int num_ranks);

/// Returns the rank whose keys and values (or queries) `rank` holds at `step`. At step 0 it holds
/// its own. Each step receives from rank - 1.
int visiting_rank(int num_ranks, int rank, int step);

}  // namespace pecia::parallel
