// SPDX-License-Identifier: Apache-2.0
#pragma once
/// LoongServe's scheduler on a state: makes the view from which loong_dispatch.hpp decides, and lets
/// keys of answers leave the instances that are to read prompts. Internal to lib/engine/schedule.

#include <span>

#include "lib/engine/schedule/admission.hpp"
#include "lib/engine/schedule/loong_dispatch.hpp"
#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// A request that begins.
struct Beginning {
  std::shared_ptr<RequestState> request;
  Slots slots;                   ///< by instance
  std::vector<int32_t> readers;  ///< of its first prompt, sorted
  int64_t batch = 0;             ///< a number that prompts of one batch have in common
};

class LoongDispatcher {
 public:
  explicit LoongDispatcher(const SchedulerLimits& limits);

  /// What begins now of the `waiting` requests, which are in the order in which they may begin.
  /// Sequences whose keys have to leave an instance first are marked (ActiveSequence::leaves).
  std::vector<Beginning> dispatch(SchedulerState& state, const Admission& admission,
                                  std::span<const std::shared_ptr<RequestState>> waiting);

  /// What joins batches that are read now of the requests that cannot begin otherwise.
  std::vector<Beginning> join(const SchedulerState& state, const Admission& admission,
                              std::span<const std::shared_ptr<RequestState>> waiting) const;

 private:
  bool costs_more_now(const std::vector<PromptToRead>& prompts, const ReadingBatch& batch,
                      const TeamTimes& times) const;

  LoongLimits limits_;
  int64_t kv_tokens_;
  int64_t batches_ = 0;
};

}  // namespace pecia::schedule
