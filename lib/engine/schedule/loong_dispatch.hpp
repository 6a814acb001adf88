// SPDX-License-Identifier: Apache-2.0
#pragma once
/// LoongServe's decisions as functions of values: which prompts begin (dispatch), on which instances
/// (elastic instance allocation), in which batches (reading_batches.hpp), and who keeps their keys
/// (proactive scale-down). Source: LoongServe (scheduling; four steps in each iteration).
///
/// Where the paper profiles a machine, the times of teams are asked. Gain and cost are seconds by
/// weight, where the weight of a prompt or answer is one by its tokens, so a short request counts
/// more.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lib/engine/schedule/reading_batches.hpp"

namespace pecia::schedule {

/// What may be left out, to measure what it brings.
struct ElasticParts {
  bool grows = true;        ///< teams of answers take in instances that have nothing to do
  bool shrinks = true;      ///< keys of answers move so that an instance can read prompts
  bool scales_down = true;  ///< a prompt's keys stay on as few instances as hold its batch
  /// Prompts join a batch between two of its passes, answers go on there where they weigh more, and
  /// instances that have nothing to do help. The paper reads a batch in one pass.
  bool interrupts = true;
  bool by_due = true;  ///< where requests wait least, in the order of due_s; else as they came
};

/// Answers of sequences that share instances: they are in passes together.
struct AnswerTeam {
  std::vector<int32_t> instances;
  double rest_s = 0;                 ///< until the last of them is expected to end
  double weight = 0;                 ///< of all of them together
  int64_t answers = 0, context = 0;  ///< context: their tokens, together
  bool can_move = true;              ///< keys may move within the team now
};

struct LoongInstance {
  int64_t free_slots = 0;
  int64_t sequences = 0;               ///< that have slots there
  int64_t used_slots = 0;              ///< reserved by these
  bool reads = false;                  ///< a prompt, or is to
  std::optional<size_t> answers = {};  ///< index of the team whose answers it makes
};

/// What the decisions follow from.
struct LoongView {
  std::vector<PromptToRead> waiting;  ///< in the order in which they may begin
  std::vector<LoongInstance> instances;
  std::vector<AnswerTeam> answers;
};

struct LoongLimits {
  ReadingGoal goal =
      ReadingGoal::mean;  ///< makespan: prompts come before answers wherever slots are free
  BatchLimits batch;
  int64_t sequences = 1;  ///< most on an instance
  ElasticParts parts = {};
};

/// The first of the waiting prompts that begin now, and instances that are to read them.
struct Dispatched {
  size_t prompts = 0;
  std::vector<int32_t> instances;
};

/// Step 1. Takes prompts in their order and all instances that have neither prompts nor answers. It
/// stops where the slots are too few, or where every instance has as many tokens as make a pass
/// compute-bound. Then an instance with answers is taken, that with the most free slots, if
/// the prompt would wait longer for its answers (gain) than these wait for the prompt (cost).
Dispatched dispatch(const LoongView& view, const TeamTimes& times, const LoongLimits& limits);

/// Step 2. Adds instances with answers whose keys have room on the other instances of their team,
/// those with the fewest used slots first, as long as the prompts are read sooner by more (gain) than
/// moving the keys delays the answers (cost). A makespan gains nothing by it, and a sequence that must
/// have several instances keeps them. Returns the instances to be emptied.
std::vector<int32_t> shrink(const LoongView& view, const TeamTimes& times,
                            const LoongLimits& limits, Dispatched& dispatched);

/// A batch under way, as a prompt that waits sees it.
struct BatchUnderWay {
  int64_t number = 0;
  std::vector<int32_t> readers;
  double rest_s = 0;  ///< until all of it is read
  double weight = 0;  ///< of its prompts together
};

/// The batch that a prompt joins which no instance can read now: between two passes, if its wait for
/// the end of the batch (gain) weighs more than the batch's wait for it (cost). Of several batches
/// the one with the greatest difference. Absent: it waits. `has_room`: whether a batch's instances have the
/// slots. The paper reads a batch in one pass and has no such choice.
std::optional<size_t> joined_batch(const PromptToRead& prompt,
                                   const std::vector<BatchUnderWay>& batches,
                                   const TeamTimes& times, const LoongLimits& limits,
                                   const std::function<bool(size_t)>& has_room);

/// Step 4. Slots for each prompt of the batch, by place among its instances: on the fewest that have
/// them all, and on one of these for each prompt where one has room. An instance has no more rows of
/// answers than make a decode pass take twice the time of one row, as long as there are others.
/// `free_slots` and `sequences` of the instances change accordingly. Empty: there is no such place, as when a prompt
/// has to be on several instances.
std::vector<std::vector<int64_t>> keepers(const std::vector<PromptToRead>& prompts,
                                          const ReadingBatch& batch, const TeamTimes& times,
                                          const LoongLimits& limits,
                                          std::vector<LoongInstance>& instances);

}  // namespace pecia::schedule
