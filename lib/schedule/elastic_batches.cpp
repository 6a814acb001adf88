// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/elastic_batches.hpp"

#include <algorithm>
#include <cmath>

#include "lib/core/error.hpp"
#include "lib/schedule/elastic_order.hpp"

namespace pecia::schedule {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// Seconds of the groups of units [i, j), by degree.
class GroupTimes {
 public:
  GroupTimes(const TeamTimes& times, const LengthOrder& order, const BatchLimits& limits)
      : order_(order), limits_(limits) {
    const int degrees = std::min(limits.instances, times.degrees());
    for (int degree = 1; degree <= degrees; ++degree)
      rates_.push_back(times.rates(degree, PassKind::prefill));
    table_.reserve(order.units() * (order.units() + 1) / 2 * rates_.size());
    for (size_t j = 1; j <= order.units(); ++j)
      for (size_t i = 0; i < j; ++i)
        for (int degree = 1; degree <= degrees; ++degree)
          table_.push_back(fits(i, j, degree) ? seconds(i, j, degree) : never);
  }

  int degrees() const { return static_cast<int>(rates_.size()); }
  size_t units() const { return order_.units(); }
  double count(size_t i, size_t j) const {
    return static_cast<double>(order_.cuts[j] - order_.cuts[i]);
  }
  /// [degree − 1]; infinite where the group has too few slots.
  const double* of(size_t i, size_t j) const {
    return table_.data() + (j * (j - 1) / 2 + i) * rates_.size();
  }
  /// Seconds of a group with enough slots.
  double seconds(size_t i, size_t j, int degree) const {
    const PassRates& rates = rates_[degree - 1];
    const int64_t rows = (order_.tokens[j] - order_.tokens[i] + degree - 1) / degree;
    const int64_t passes = (rows + limits_.rows_per_instance - 1) / limits_.rows_per_instance;
    return rates.pass_s * static_cast<double>(passes) + rates.row_s * static_cast<double>(rows) +
           rates.pair_s * (order_.pairs[j] - order_.pairs[i]) / degree;
  }

 private:
  bool fits(size_t i, size_t j, int degree) const {
    const int64_t slots = order_.slots[j] - order_.slots[i];
    return (slots + degree - 1) / degree <= limits_.slots_per_instance;
  }

  const LengthOrder& order_;
  const BatchLimits& limits_;
  std::vector<PassRates> rates_;
  std::vector<double> table_;
};

/// What a group costs, and how the costs of groups come together.
enum class Cost { waiting, makespan, area };

/// Least costs of the first units, by number of instances.
class Recursion {
 public:
  /// Groups that last longer than `longest_s` are not allowed.
  Recursion(const GroupTimes& times, int instances, Cost cost, double longest_s = never)
      : times_(times), instances_(instances), cost_(cost), longest_s_(longest_s) {
    least_.assign(times.units() + 1, std::vector<double>(instances + 1, never));
    least_[0].assign(instances + 1, 0);
    for (size_t j = 1; j <= times.units(); ++j)
      for (size_t i = j; i-- > 0;) extend(i, j);
  }

  /// The least cost of all units on at most `instances`; infinite where there is none.
  double least(int instances) const { return least_.back()[instances]; }

  struct Group {
    size_t begin = 0, end = 0;  ///< units
    int degree = 1;
  };
  /// The groups that reach least(instances_), on as few instances as do.
  std::vector<Group> groups() const {
    int left = instances_;
    while (least_.back()[left - 1] <= least_.back()[left]) --left;
    std::vector<Group> result;
    for (size_t j = times_.units(); j > 0; j = result.back().begin) {
      result.push_back(last_group(j, left));
      left -= result.back().degree;
    }
    std::reverse(result.begin(), result.end());
    return result;
  }

 private:
  double cost(size_t i, size_t j, int degree) const {
    const double seconds = times_.of(i, j)[degree - 1];
    if (seconds > longest_s_) return never;
    switch (cost_) {
      case Cost::waiting:
        return seconds * times_.count(i, j);
      case Cost::makespan:
        return seconds;
      case Cost::area:
        return seconds * degree;
    }
    return never;
  }
  double together(double a, double b) const {
    return cost_ == Cost::makespan ? std::max(a, b) : a + b;
  }

  /// Tries the group [i, j) after the best of the units before it. Costs never rise with instances,
  /// so a degree is passed over where it does not beat a smaller one or cannot improve any entry.
  void extend(size_t i, size_t j) {
    const std::vector<double>& before = least_[i];
    std::vector<double>& now = least_[j];
    double beaten = never;
    for (int degree = 1; degree <= times_.degrees(); ++degree) {
      const double own = cost(i, j, degree);
      if (own >= beaten || together(before[instances_ - degree], own) >= now[degree]) continue;
      beaten = own;
      const int rest = instances_ - degree;
      const double* from = before.data();
      double* to = now.data() + degree;
      if (cost_ == Cost::makespan) {
        for (int k = 0; k <= rest; ++k) to[k] = std::min(to[k], std::max(from[k], own));
      } else {
        for (int k = 0; k <= rest; ++k) to[k] = std::min(to[k], from[k] + own);
      }
    }
  }

  Group last_group(size_t j, int instances) const {
    Group best{0, j, 1};
    double least = never;
    for (int degree = 1; degree <= std::min(instances, times_.degrees()); ++degree)
      for (size_t i = j; i-- > 0;)
        if (const double found = together(least_[i][instances - degree], cost(i, j, degree));
            found < least)
          least = found, best = {i, j, degree};
    return best;
  }

  const GroupTimes& times_;
  int instances_;
  Cost cost_;
  double longest_s_;
  std::vector<std::vector<double>> least_;  ///< [units][instances]
};

/// So many that 512 requests take about as long for any number of instances up to 64: 3 ms. A
/// multiple of the instances lets many equal requests be dealt evenly.
size_t most_units(size_t requests, int instances) {
  const auto most = static_cast<int>(std::max(64.0, 512 / std::sqrt(instances)));
  const bool joined = requests > static_cast<size_t>(most);
  return static_cast<size_t>(joined && instances < most ? most - most % instances : most);
}

/// The least seconds of one group of all requests on at most `instances`.
double one_group_s(const GroupTimes& times, int instances) {
  double least = never;
  for (int degree = 1; degree <= std::min(instances, times.degrees()); ++degree)
    least = std::min(least, times.seconds(0, times.units(), degree));
  return least;
}

void check_limits(const std::vector<ElasticRequest>& requests, const BatchLimits& limits) {
  PECIA_CHECK(
      limits.instances >= 1 && limits.rows_per_instance >= 1 && limits.slots_per_instance >= 1,
      "{} instances with {} rows and {} slots each", limits.instances, limits.rows_per_instance,
      limits.slots_per_instance);
  check_requests(requests);
}

}  // namespace

Batches batches(const TeamTimes& times, const std::vector<ElasticRequest>& requests,
                const BatchLimits& limits, job::Objective objective) {
  check_limits(requests, limits);
  Batches result;
  if (requests.empty()) return result;
  const bool ttft = objective == job::Objective::ttft;
  const LengthOrder order = length_order(times.rates(1, PassKind::prefill), requests,
                                         most_units(requests.size(), limits.instances),
                                         ttft ? UnitWeight::root_of_length : UnitWeight::length);
  const GroupTimes group_times(times, order, limits);
  const auto all = static_cast<double>(requests.size());

  const Recursion first(group_times, limits.instances, ttft ? Cost::waiting : Cost::makespan);
  result.by_instances.resize(limits.instances);
  double with_more = 0;  // the value on k + 1 instances
  for (int k = limits.instances; k >= 1; --k) {
    const double least = first.least(k);
    with_more = least == never ? std::max(with_more, one_group_s(group_times, k))
                               : least / (ttft ? all : 1);
    result.by_instances[k - 1] = with_more;
  }
  result.one_group_s = one_group_s(group_times, limits.instances);

  std::vector<Recursion::Group> groups;
  if (first.least(limits.instances) == never) {
    groups = {{0, order.units(), group_times.degrees()}};
  } else if (ttft) {
    groups = first.groups();
  } else {
    groups = Recursion(group_times, limits.instances, Cost::area, first.least(limits.instances))
                 .groups();
  }
  for (const auto& [begin, end, degree] : groups) {
    BatchGroup group;
    group.requests.assign(order.requests.begin() + static_cast<int64_t>(order.cuts[begin]),
                          order.requests.begin() + static_cast<int64_t>(order.cuts[end]));
    group.degree = degree;
    group.seconds = group_times.seconds(begin, end, degree);
    result.mean_s += group.seconds * static_cast<double>(group.requests.size()) / all;
    result.makespan_s = std::max(result.makespan_s, group.seconds);
    result.groups.push_back(std::move(group));
  }
  return result;
}

}  // namespace pecia::schedule
