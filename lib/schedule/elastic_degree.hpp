// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Elastic teams, steps 3 and 4: how many instances read a prompt, and how many have rows of a decode
/// pass. Both follow from the times of teams. Each result tells what was rejected, for the trace.
/// Source: LoongServe (batching with the degree of each batch; elastic scaling plan; multi-master
/// distributed decoding).
///
/// LoongServe finds batches and degrees by dynamic programming over the requests that wait. Here a
/// request has begun on its instances already, and instances that have nothing else to do join them.

#include <cstdint>

#include "lib/schedule/team_times.hpp"

namespace pecia::schedule {

/// What is left of a prompt, and who could read it.
struct PromptLeft {
  int64_t cached = 0, tokens = 1;
  int holders = 1;                ///< instances that have its slots, and read it in any case
  int candidates = 1;             ///< with these: instances that could read it
  int64_t rows_per_instance = 1;  ///< new tokens of an instance in a pass, at most
};

struct ReadingDegree {
  int degree = 1;
  double seconds = 0;    ///< until it is read
  double holders_s = 0;  ///< rejected, or equal: the holders alone
};

/// An instance is no candidate where it would get fewer new tokens than this.
inline constexpr int64_t least_rows_of_reader = 64;

/// Returns the degree from `holders` to `candidates` with the least time, of equal ones the least.
/// Throws InvalidArgument unless 1 ≤ holders ≤ candidates ≤ times.degrees().
ReadingDegree reading_degree(const TeamTimes& times, const PromptLeft& prompt);

struct Masters {
  int count = 1;
  double seconds = 0;
  double one_s = 0;   ///< with one master
  double most_s = 0;  ///< with as many masters as possible, each with a row
};

/// Returns the number of masters of a decode pass: the fewest whose predicted time is within 2 % of
/// the least. More masters always mean fewer rows for each, and the rates do not count what else
/// they bring (each reads the weights and sends queries to all). So the margin keeps one master
/// where a batch is very small. Throws InvalidArgument as decode_s does.
Masters masters(const TeamTimes& times, int degree, int64_t rows, int64_t context_pairs);

}  // namespace pecia::schedule
