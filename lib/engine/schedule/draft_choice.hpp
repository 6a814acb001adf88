// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many drafted tokens a pass tries: the number that gives most tokens a second.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/engine/schedule/pass_times.hpp"

namespace pecia::schedule {

/// A draft that the pass may try.
struct DraftOffer {
  int64_t tokens = 0;
  double rate = 0;   ///< how likely a token of it is right, where all before it were
  double pairs = 0;  ///< tokens that a row of it attends to
};

/// Of each offer, how many of its first tokens are worth a row in a pass that else does `without` and
/// gives a token for each of its rows: likelier tokens first, and the number that gives most tokens a second by
/// `seconds` of a pass, and none unless that is 5 % more than without.
///
///     a pass with one row takes 10 ms, with each further row 1 ms more; of drafted tokens half are right
///     with 0, 1, 2, 3 tokens 100, 136, 146 and 144 tokens/s are expected: 2 are tried
///
/// `replays`: where a token is wrong, the rows before it are computed again with the next token, as
/// further rows of that pass.
std::vector<int64_t> tokens_worth(std::span<const DraftOffer> offers, const PassWork& without,
                                  const std::function<double(const PassWork&)>& seconds,
                                  bool replays);

}  // namespace pecia::schedule
