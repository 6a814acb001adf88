// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The attention calls of a pass: which rows attend which keys, and where these lie.

#include "lib/model/attention/attention_steps.hpp"
#include "lib/model/attention/pass_rows.hpp"

namespace pecia::attention {

/// The keys of one rank, by sequence in the order of PassRows::key_sequences.
using SequenceRuns = std::vector<std::vector<kernels::KeyRun>>;

class PassCalls {
 public:
  /// Both must outlive this object.
  PassCalls(const AttentionSteps& steps, const PassRows& rows) : steps_(steps), rows_(rows) {}

  /// This rank's own keys in layers of a kind, where they are cached.
  SequenceRuns in_cache(const LayerKind& kind) const;
  /// The keys of `rank` in its message round the ring.
  SequenceRuns in_message(const LayerKind& kind, int rank) const;

  /// The rows of `rank` against these keys.
  AttentionCall call(int rank, const SequenceRuns& runs) const;
  /// Adds rows, after those that the call has, against these keys.
  void add(AttentionCall& call, const std::vector<SequenceRows>& rows,
           const SequenceRuns& runs) const;

 private:
  const AttentionSteps& steps_;
  const PassRows& rows_;
};

}  // namespace pecia::attention
