// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Drafted tokens of answers where teams change. They are further rows of the instance that computes the
/// answer's next token, and have slots there.

#include <cstdint>
#include <vector>

#include "lib/engine/schedule/pass_drafts.hpp"

namespace pecia::schedule {

/// Free slots of the sequence on an instance.
int64_t room_on(const SchedulerState& state, const ActiveSequence& sequence, int32_t instance);

/// Drafts the answers of sequences that a team of `degree` instances goes on with, at most `spare` tokens
/// in all. A draft has no more tokens than the sequence has slots for on some instance, and than should
/// pay.
PassDrafts draft_for_team(SchedulerState& state, const Selection& ready, int degree, int64_t spare);

/// The sequence's drafted tokens that have slots on this instance after those that it computes again and
/// the answer's next one.
std::vector<int32_t> drafted_on(const SchedulerState& state, const PassDrafts& drafts,
                                const ActiveSequence& sequence, int32_t instance);

/// The rows that sequences have with these drafts and what they compute again, and what these attend to.
struct DraftedRows {
  int64_t rows = 0, pairs = 0;
};
DraftedRows rows_with(const SchedulerState& state, const PassDrafts& drafts,
                      const Selection& ready);

}  // namespace pecia::schedule
