// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What an instance does first where no request is to wait long for its size. Rules as plain
/// functions of expected times.

#include <cstdint>

#include "lib/engine/schedule/pass_times.hpp"

namespace pecia::schedule {

/// Returns until when a request should have its first token: 25 times the seconds that reading its
/// prompt takes alone, on one instance where teams change, after it came. Prompts are read in this
/// order. So a short prompt overtakes a long one, also between two chunks of it, but no prompt waits
/// for ever: prompts that come after its own time are due later. Source: LoongServe counts requests
/// that are served within 25 times their unloaded latency.
double due_s(double came_s, double alone_s);

/// New tokens of each instance in a pass that is as short as it may be. What each pass costs however
/// few tokens it has then is a twentieth of the whole. At least 128.
///
/// `cached`: tokens before these, which each of them attends to.
int64_t short_pass_rows(const PassRates& rates, int64_t cached);

/// What is left of a prompt, and of the answers on the same instances.
struct PromptOrAnswers {
  double prompt_s = 0;   ///< to read the rest of the prompt
  int64_t answers = 0;   ///< under way
  double answers_s = 0;  ///< until the last of them has ended, without the prompt
};

/// Whether the answers are ended before the prompt is read on. If the prompt goes first, each answer
/// waits for prompt_s; else the prompt waits for answers_s. The lesser sum is taken (Smith's rule),
/// and of equal ones the prompt.
///
///     a prompt of 0.2 s beside 1 answer of 2 s       0.2 against 2       the prompt
///     a prompt of 30 s beside 1 answer of 2 s        30 against 2        the answer
bool answers_come_first(const PromptOrAnswers& left);

}  // namespace pecia::schedule
