// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Says which instances keep the tokens of a sequence that a pass computes or gathers. In a pass-KV
/// ring every key passes every instance of the team, so an instance can keep any of them without a
/// further message. Source: LoongServe (proactive scale-down).

#include <cstdint>
#include <vector>

#include "lib/ranks/parallel/pass.hpp"

namespace pecia::parallel {

struct Team;

/// Tokens that an instance keeps.
struct KeptShare {
  int32_t instance = 0;
  int64_t tokens = 0;
  bool operator==(const KeptShare&) const = default;
};

/// Where a sequence's keys and values lie after a pass of a team whose ring is pass_kv.
///
/// The pass's new tokens are dealt to the shares, whichever instance computes them. With `gathers`,
/// the sequence's cached tokens on instances without a share are dealt, too. These instances then
/// hold nothing of the sequence, and their reservation ends. Cached tokens on instances with a
/// share stay there.
///
/// Tokens are dealt in the order of the ring. An instance's cached tokens come first, as it has
/// cached them, and then its rows. The first share takes the first of them.
///
///     8 new tokens on instances 0, 1    rows of 0: 0 1 6 7   rows of 1: 2 3 4 5
///     shares 0: 3, 1: 5                 0 keeps 0 1 6        1 keeps 7 2 3 4 5
struct Placement {
  SequenceId sequence = 0;
  std::vector<KeptShare> shares;
  uint8_t gathers = 0;

  bool has_share(int instance) const;

  template <typename A>
  void visit(A& archive) {
    archive(sequence), archive(shares), archive(gathers);
  }
};

/// A sequence's tokens that travel from one place of the ring: `cached` ones, and then its rows.
struct TravellingTokens {
  std::vector<StridedRange> ranges;
  int64_t cached = 0, count = 0;
};

/// The tokens `run` of what travels from place `source` of the ring.
struct KeptRun {
  int source = 0;
  IndexRun run;
  bool operator==(const KeptRun&) const = default;
};

/// Returns the tokens that an instance keeps, in the order in which they follow those that it has
/// cached. `travelling` is by place in the ring. Throws InvalidArgument unless the shares are of
/// instances of the team and add up to the tokens that are dealt.
std::vector<KeptRun> kept_runs(const Placement& placement, const Team& team,
                               const std::vector<TravellingTokens>& travelling, int instance);

}  // namespace pecia::parallel
