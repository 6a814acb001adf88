// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long any pass of a replica takes, from a few passes that span those of a batch.

#include <optional>
#include <vector>

#include "lib/foresight/passes.hpp"
#include "lib/resources/resources.hpp"

namespace pecia::foresight {

/// The lengths between which the passes of a batch lie.
struct PassSpan {
  int64_t batch_tokens = 1;    ///< new tokens of a pass with prompts, at most
  int64_t longest_prompt = 1;  ///< tokens, with the cached ones
  int64_t sequences = 1;       ///< that decode together, at most
  int64_t context = 1;         ///< tokens of an answer's sequence, on average
};

/// Whether passes are played by all ranks, or their least times are taken from one (passes.hpp).
enum class HowFar { at_least, played };

class ReplicaTimes {
 public:
  /// `resources`: with degrees and modes. A ring that is chosen by rule is the faster one for each
  /// pass. Decode shift is taken to shift in every step: decode sp is the same without.
  ReplicaTimes(Passes& passes, const resources::Resources& resources, const PassSpan& span,
               HowFar how_far);

  /// Times on a line through those passes, for the replica's one team of all instances.
  const schedule::TeamTimes& team() const { return *team_; }
  /// The largest relative error of that line at one of these passes.
  double error() const { return error_; }
  /// What work of this kind takes, mixed of those passes and scaled to the line's time. Bytes and
  /// ranks are as in Passes.
  PassFigures of(schedule::PassKind kind, const schedule::PassWork& work) const;

 private:
  const std::vector<PassFigures>& figures(schedule::PassKind kind) const {
    return kind == schedule::PassKind::prefill ? prefill_ : decode_;
  }

  int instances_;
  std::vector<PassFigures> prefill_, decode_;
  std::optional<schedule::TeamTimes> team_;
  double error_ = 0;
};

/// How often each of some passes is done so that their work adds up to `work`, as nearly as numbers
/// that are not negative can.
std::vector<double> mix_of(const std::vector<schedule::PassWork>& passes,
                           const schedule::PassWork& work);

}  // namespace pecia::foresight
