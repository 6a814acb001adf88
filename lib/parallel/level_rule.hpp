// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Into how many micro-partitions levels of sparse attention are best cut. The function is pure, as
/// those of ring_rule.hpp, and uses their inputs.
///
/// A pass has T new and P cached tokens on N ranks, n = T/N rows on each, and levels keep the share
/// k of them. A layer of one rank then takes, beside projections,
///
///     own attention    L = 4·n·(n/2 + P/N)·Hq·D / C
///     attention        A = 4·k²·n·(T·(1 − 1/N)/2 + P)·Hq·D / C
///     tokens           I = k·n·(Hq·e_q + 2·Hkv·e_kv)·D·(1 − 1/N) / BW_a
///     outputs          O = k·n·Hq·e_out·D·(1 − 1/N) / BW_a
///
/// The first of M partitions must have come when the own part is attended, and the last one's
/// outputs go home after all attention. A slow link is busy all the time, and then the last
/// partition is still to be attended and sent home. So what attention does not hide is the most of
///
///     max(0, I/M − L) + O/M,     I + (A + O)/M − L − A,     I + O − L − A
///
/// Each doubling of M costs a hundredth of A, since smaller pieces are attended more slowly. D
/// cancels out. Source: CSPS, "three-phase pipelining".

#include "lib/parallel/levels.hpp"
#include "lib/parallel/ring_rule.hpp"

namespace pecia::parallel {

/// The best of 1, 2, 4 and 8, where each partition still has 64 rows of a rank; of equal ones the
/// least. The link between all ranks counts for all levels.
int best_micro(const RingInputs& in, const LevelRule& rule);

}  // namespace pecia::parallel
