// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Third step of elastic sequence parallelism: which requests are read together, by teams of which
/// degree. Source: LoongServe (batching by dynamic programming).

#include <cstdint>
#include <limits>
#include <vector>

#include "lib/job/job.hpp"
#include "lib/schedule/elastic_request.hpp"
#include "lib/schedule/team_times.hpp"

namespace pecia::schedule {

struct BatchLimits {
  int instances = 1;              ///< degrees of all groups together, at most
  int64_t rows_per_instance = 1;  ///< most new tokens of an instance in a pass
  /// A group of degree d has at most d times as many slots. Free slots differ between instances, so
  /// this is the caller's estimate.
  int64_t slots_per_instance = std::numeric_limits<int64_t>::max();
};

/// Requests that one team reads in common passes.
struct BatchGroup {
  std::vector<int32_t> requests;  ///< their places in the input, shortest first
  int degree = 1;
  double seconds = 0;  ///< until the group is read, which each of its requests waits
};

struct Batches {
  std::vector<BatchGroup> groups;  ///< shortest requests first; they work side by side
  double mean_s = 0;               ///< time to the first token, over all requests
  double makespan_s = 0;
  /// [k − 1]: the objective's least value on at most k instances: mean or makespan.
  std::vector<double> by_instances;
  /// Rejected, or equal to the result: the objective's value with all requests in one group of its
  /// best degree.
  double one_group_s = 0;
};

/// Partitions requests into groups and gives each a degree, so that the objective is least: the
/// makespan, and of equal ones Σ degree · seconds; or the mean time to the first token.
///
/// Requests are ordered by length: by the time of their rows and pairs on one instance, of equal
/// ones the earlier in the input first. A group is consecutive in this order. A group with T tokens
/// to read and P pairs takes, at degree d with that degree's rates and R = rows_per_instance,
///
///     pass_s·⌈⌈T/d⌉/R⌉ + row_s·⌈T/d⌉ + pair_s·P/d
///
/// Dynamic programming over prefixes of the order: the first j requests on at most k instances are
/// the first i on at most k − d and one group of degree d of the others, for the best i and d. For
/// throughput it runs twice, once for the makespan and once for the least Σ degree · seconds among
/// the partitions that reach it. Of partitions with the same value, the one with fewest instances
/// is returned.
///
/// Exact, within the order, for up to max(64, 512 / √instances) requests. Of more requests,
/// neighbours are joined beforehand to units of about equal weight, as length_order says. Then a
/// group is a number of whole units, and a long request remains a unit by itself. Of 512 requests
/// in four mixtures of lengths, the value was at most 4 % above the exact one on up to 64 instances
/// and at most 14 % on 128. It took at most 3.5 ms on up to 64 instances (one core of a Xeon).
///
/// If slots_per_instance allows no partition, the result is one group on all instances. Where it
/// allows none on k of them, by_instances counts one group of k, or what k + 1 take if that is more,
/// so that these values never rise with instances. Degrees
/// above times.degrees() are not used. Throws InvalidArgument if a limit is below 1 or a request
/// has no token to read.
Batches batches(const TeamTimes& times, const std::vector<ElasticRequest>& requests,
                const BatchLimits& limits, job::Objective objective);

}  // namespace pecia::schedule
