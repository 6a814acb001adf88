// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What plans contain where several go through the stages of a pipeline one behind the other
/// (SchedulerLimits::stages). A prompt's next chunk is planned while earlier ones are under way. Answers
/// go in groups, of which there are as many as stages if there are enough answers: a sequence's next
/// token is planned when the one before is known.
///
/// Source: GPipe (micro-batches); Sarathi-Serve, §4 (chunks of equal time have no bubbles between).

#include <cstdint>
#include <span>
#include <vector>

#include "lib/engine/schedule/scheduler_limits.hpp"

namespace pecia::schedule {

/// A prompt on its way through the stages, in tokens.
struct PipelinedPrompt {
  int64_t first = 0;  ///< position of its first token
  int64_t count = 0;
  int64_t planned = 0;  ///< of these
};

/// How chunks are cut.
struct ChunkRule {
  double row_work = 1, pair_work = 0;  ///< as in SchedulerLimits
  int64_t most = 1;                    ///< tokens of a pass
  int64_t least = 1;                   ///< fewer are not worth a pass
  int64_t unit = 1;                    ///< chunks but the last are multiples of it
  int64_t chunks = 1;  ///< that the prompt is cut into at least, if it is long enough
};

/// The rule of a scheduler. `alone`: nothing else is to be read, so the prompt is cut into more chunks
/// than stages, of which these wait for less.
ChunkRule chunk_rule(const SchedulerLimits& limits, bool alone);

/// Tokens of the prompt's next chunk. Each chunk is as much work as the others, so chunks become shorter
/// as attention grows: as much as `most` tokens at the prompt's begin, or less where the prompt is cut
/// into more chunks. The last one is what is left.
///
///     work 1 a row and 0.01 a pair, 300 tokens in 4 chunks     118, 74, 59, 49
int64_t chunk_of_equal_work(const PipelinedPrompt& prompt, const ChunkRule& rule);

/// The share of a pass's time that each stage takes, by its work. `stage_work`, `head_work`: as in
/// SchedulerLimits; `outputs`: rows whose output is asked for, of `rows`.
std::vector<double> shares_of_stages(std::span<const double> stage_work, double head_work,
                                     int64_t rows, int64_t outputs);

/// Answers of a pass at most, of `answers` that there are: a share for each stage.
///
///     7 answers, 3 stages     3
int64_t answers_of_group(int64_t answers, int stages);

}  // namespace pecia::schedule
