// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fourth step of elastic sequence parallelism: the degree after a prefill, the masters of a decode
/// pass, and the degree of a request that is dealt alone.
/// Source: LoongServe (elastic scaling plan; multi-master distributed decoding).

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/schedule/team_times.hpp"

namespace pecia::schedule {

struct FreeSlots {
  int32_t instance = 0;
  int64_t slots = 0;
};

/// What an instance holds of a sequence.
struct KvShare {
  int32_t instance = 0;
  int64_t tokens = 0;         ///< of the prompt
  int64_t answer_tokens = 0;  ///< slots that are kept free for its answer
  bool operator==(const KvShare&) const = default;
};

/// Deals `tokens` to places in proportion to their free slots. Each gets the whole part of its
/// share. The tokens left go to the places with the largest fractions, of equal ones to the
/// earlier. No place gets more than it has free.
///
///     10 tokens on 6, 6 and 3 free slots      4, 4, 2
///     10 tokens on 7, 5 and 5                 4, 3, 3 (of 4.12, 2.94, 2.94)
///     10 tokens on 7, 7 and 7                 4, 3, 3
///
/// Throws InvalidArgument if a number is negative or there are more tokens than free slots. The
/// product of tokens and free slots must fit in 63 bits.
std::vector<int64_t> shares_by_free_slots(int64_t tokens, const std::vector<int64_t>& free_slots);

struct Keepers {
  std::vector<KvShare> shares;  ///< most free slots first; empty: the team has too few slots
  int64_t missing_slots = 0;    ///< that the team lacks
  double seconds = 0;           ///< of a decode pass of the sequence on the keepers
  /// Rejected: a decode pass of the sequence on the whole team.
  double whole_team_s = 0;
};

/// Returns the fewest instances of a team that can keep a sequence after its prefill, so that the
/// others are free at once. Their free slots together hold the prompt's `tokens` and an answer of
/// `answer_tokens`. Instances with most free slots come first, of equal ones the earlier of the
/// team. That order gives the least number. Instances outside the team never keep anything, as the
/// keys pass only the team's ring. Both numbers of tokens are dealt by free slots; those of the
/// answer by what the prompt leaves free.
///
/// Throws InvalidArgument if the team is empty or larger than times.degrees(), or a number is
/// negative.
Keepers keepers(const TeamTimes& times, const std::vector<FreeSlots>& team, int64_t tokens,
                int64_t answer_tokens);

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

struct DegreeChoice {
  int degree = 1;
  double seconds = 0;      ///< of the request at this degree
  double end_s = 0;        ///< by which all work could end, by the formula below
  double alone_end_s = 0;  ///< rejected: the same at degree 1
  int fastest = 1;         ///< rejected: the degree with the least seconds
  double fastest_end_s = 0;
};

/// Returns the degree for one request of a batch job when requests are dealt one after the other,
/// longest first. `seconds[d − 1]` is what the request takes at degree d; `work_s` is all work that
/// remains, in seconds of single instances, with this request at degree 1.
///
/// All work needs at least work_s / instances. A request that would last longer than this gets more
/// instances, but each degree has a price: d·t[d] instance-seconds instead of t[1], which everything
/// else pays. So the degree is the one that minimises
///
///     end(d) = max(t[d], (work_s − t[1] + d·t[d]) / instances)
///
/// and of equal ones the least. Short requests stay at degree 1; a request alone gets the degree
/// with the least time; a degree that wastes more than it gains is never taken.
///
///     8 instances, 80 s of work, t = 24, 13, 9.5, 8     end = 24, 13, 10.56, 11     degree 3
///
/// Throws InvalidArgument unless 1 ≤ seconds.size() ≤ instances, all are positive and work_s is at
/// least seconds[0].
DegreeChoice degree_alone(const std::vector<double>& seconds, double work_s, int instances);

}  // namespace pecia::schedule
