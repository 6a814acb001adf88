// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Layers with a window as values: which keys a rank's rows see, and so which keys other ranks send
/// it (kernels/api/window.hpp). Beyond its own keys a rank needs only those shortly before its rows,
/// its *halo*. They go to it straight, and not round the ring.
///
///     16 tokens on 2 ranks, chunks of 4     rank 0: [0,4) [12,16)     rank 1: [4,8) [8,12)
///     window 3                              rank 1 sends 10 11        rank 0 sends 2 3
///     attention in chunks of 6              rank 1 sends nothing      rank 0 sends 0 … 3
///     round the ring                        rank 1 sends 4 … 11       rank 0 sends 0 … 3, 12 … 15

#include <cstdint>
#include <vector>

#include "kernels/api/window.hpp"
#include "lib/ranks/parallel/team.hpp"

namespace pecia::parallel {

/// Returns the tokens of `keys` that some row sees through the window, which there is. A token is
/// counted by its place among all tokens of `keys`. The runs ascend and do not touch each other.
///
///     keys at 0 1 2 3 and 12 13 14 15, rows at 4 … 7, window 3     tokens [2,4)
std::vector<IndexRun> seen_through(kernels::Window window, const std::vector<GlobalRange>& rows,
                                   const std::vector<StridedRange>& keys);

/// Returns the rows that see some of the keys through the window, counted in the same way among all
/// rows.
///
///     keys at 0 1 2 3 and 12 13 14 15, rows at 4 … 7, window 3     rows [0,2)
std::vector<IndexRun> rows_that_see(kernels::Window window, const std::vector<GlobalRange>& rows,
                                    const std::vector<StridedRange>& keys);

/// Returns the positions of the tokens `runs` of `keys`, in their order.
std::vector<StridedRange> positions_of(const std::vector<IndexRun>& runs,
                                       const std::vector<StridedRange>& keys);

int64_t count_tokens(const std::vector<IndexRun>& runs);

/// A sequence whose keys are wanted, at each place of a ring: the tokens that are there, and the
/// rows that see them. Rows of a sequence also see the tokens of the sequence that it begins with.
struct HaloSequence {
  std::vector<std::vector<StridedRange>> keys;
  std::vector<std::vector<GlobalRange>> rows;
};

/// What one rank of a ring sends and receives in a layer with a window, by rank of the ring and then
/// by sequence. Nothing goes to the rank itself. All ranks have the same sequences, so what a rank
/// sends to another one is what the other receives from it.
struct Halo {
  std::vector<std::vector<std::vector<IndexRun>>> leaving;  ///< of the rank's own tokens
  std::vector<std::vector<std::vector<IndexRun>>> coming;   ///< of the tokens of the other rank
};
Halo halo_of(const std::vector<HaloSequence>& sequences, int ranks, int rank,
             kernels::Window window);

/// Tells whether the halo of this window goes straight to the ranks that see it. Otherwise all keys
/// go round the ring. `held` has the tokens that each place of the ring would send round it.
///
/// On up to three ranks each rank is next to every other. So straight messages cross no more links
/// than the ring's, and there are no more of them. On more ranks they may have a long way. There the
/// halo goes straight if no rank gets more than half of what the ring would bring it. This also
/// bounds the memory for it.
bool halo_goes_straight(const std::vector<PassSequence>& pass, const Team& team,
                        kernels::Window window, const std::vector<int64_t>& held);

}  // namespace pecia::parallel
