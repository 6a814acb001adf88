// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Elastic teams, steps 3 and 4: how many instances read a prompt, how many have rows of a decode
/// pass, and when a team grows. All follow from the times of teams. Each result also tells what the
/// rejected choice would take.
/// Source: LoongServe (batching with the degree of each batch; elastic scaling plan; multi-master
/// distributed decoding).
///
/// LoongServe finds batches and degrees by dynamic programming over the requests that wait. Here a
/// request has begun on its instances already, and instances that have nothing else to do join them.

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/engine/schedule/team_times.hpp"

namespace pecia::schedule {

/// An instance that has no slots of a prompt and could read it.
struct Reader {
  int64_t answers = 0;  ///< under way there; they wait while it reads
  double ready_s = 0;   ///< until the pass in which it is now has ended
};

/// What is left of a prompt, and who could read it.
struct PromptLeft {
  int64_t cached = 0, tokens = 1;
  int holders = 1;                  ///< instances that have its slots, and read it in any case
  std::vector<Reader> others = {};  ///< in the order in which they would join
  int64_t waiting = 1;            ///< prompts and answers on the holders that wait until it is read
  int64_t rows_per_instance = 1;  ///< new tokens of an instance in a pass, at most
};

struct ChosenDegree {
  int degree = 1;
  double seconds = 0;    ///< until a prompt is read, or of a decode pass
  double holders_s = 0;  ///< rejected, or equal: of the holders alone
};

/// An instance does not join where it would get fewer new tokens than this.
inline constexpr int64_t least_rows_of_reader = 64;

/// Returns how many instances read the prompt: the holders, and then others. All that wait for a
/// degree wait until the prompt is read, so the degree with the least sum of these times is taken,
/// of equal ones the least. Where no other has answers, that is the degree with the least time.
/// Throws InvalidArgument unless 1 ≤ holders, and all instances are ≤ times.degrees().
/// LoongServe preempts instances by their unused slots; here it is by the answers that would wait.
ChosenDegree reading_degree(const TeamTimes& times, const PromptLeft& prompt);

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
/// `answers`: where some answers have several rows, how many answers there are, since all rows of one
/// are on one master.
Masters masters(const TeamTimes& times, int degree, int64_t rows, int64_t context_pairs,
                std::optional<int64_t> answers = {});

struct GrownTeam {
  int degree = 1;
  int masters = 1;
  double seconds = 0;   ///< of a decode pass
  double before_s = 0;  ///< rejected, or equal: of the team as it is
};

/// Returns the degree to which a team that decodes grows when up to `candidates` − `degree` further
/// instances have nothing to do. These keep what the answers add from now on, and have rows of
/// their own. Nothing that is held moves, so a long context alone gains nothing. It is the degree
/// with the least time, of equal ones the least, if that saves a quarter of the time; else the team
/// stays as it is. A team that has grown cannot shrink while its answers go on, and times of degrees
/// that were never measured are estimates, so less would be no safe gain. Throws InvalidArgument
/// unless 1 ≤ degree ≤ candidates ≤ times.degrees(). `answers` as for masters().
GrownTeam grown_team(const TeamTimes& times, int degree, int candidates, int64_t rows,
                     int64_t context_pairs, std::optional<int64_t> answers = {});

/// An answer that is about to begin, and the others on the instances that hold its prompt.
struct AnswersAhead {
  int64_t context = 0;        ///< tokens of its prompt
  int64_t others = 0;         ///< answers on the same instances
  int64_t other_context = 0;  ///< their tokens, together; these stay where they are
};

/// Returns how many instances hold a prompt's keys for its answer: `holders`, or `readers`, if a
/// decode pass of these takes a tenth less time. The others of them have nothing else to do. Their
/// times may be estimates, so less would be no safe gain. Throws InvalidArgument unless
/// 1 ≤ holders ≤ readers ≤ times.degrees().
ChosenDegree answering_degree(const TeamTimes& times, int holders, int readers,
                              const AnswersAhead& answers);

}  // namespace pecia::schedule
