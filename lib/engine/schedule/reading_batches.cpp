// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/reading_batches.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr size_t most_instances = 16, instances_of_a_part = 8;
constexpr size_t units_of_an_instance = 2, fewest_units = 8;

/// What a team of `degree` instances computes of a prompt, all passes together.
PassWork whole_work(int64_t tokens, int degree, int64_t rows_per_instance) {
  const auto count = static_cast<double>(tokens),
             pass = static_cast<double>(degree * rows_per_instance);
  PassWork work = work_of(0, count, pass);
  work.passes = 0;  // these are shared with other prompts
  work.cached = 0.5 * std::max(0.0, count * count / pass - count);
  return work;
}

double seconds_of(const DegreeTimes& times, PassWork work, int degree, int64_t rows_per_instance) {
  work.passes =
      std::max(1.0, std::ceil(work.rows / static_cast<double>(degree * rows_per_instance)));
  return times.seconds(work.shared(degree));
}

/// The dynamic program. Neighbours in the order of lengths are taken together as units.
class Program {
 public:
  Program(const TeamTimes& times, const std::vector<PromptToRead>& prompts,
          const std::vector<int64_t>& free_slots, ReadingGoal goal, const BatchLimits& limits)
      : prompts_(prompts),
        goal_(goal),
        limits_(limits),
        order_(prompts.size()),
        instances_(free_slots.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(order_, std::ranges::greater(),
                             [&](size_t i) { return prompts[i].tokens; });
    std::iota(instances_.begin(), instances_.end(), size_t{0});
    std::ranges::stable_sort(instances_, std::ranges::greater(),
                             [&](size_t i) { return free_slots[i]; });
    free_.push_back(0);
    for (const size_t instance : instances_) free_.push_back(free_.back() + free_slots[instance]);
    make_units();
    const auto most = std::min<int64_t>(limits.most, std::ssize(instances_));
    for (int degree = 1; degree <= most; ++degree) {
      times_.push_back(times.of(degree, PassKind::prefill));
      std::vector<PassWork>& work = work_.emplace_back(1);
      for (size_t unit = 0; unit + 1 < ends_.size(); ++unit) {
        PassWork sum = work.back();
        for (size_t i = ends_[unit]; i < ends_[unit + 1]; ++i)
          sum += whole_work(prompts[order_[i]].tokens, degree, limits.rows_per_instance);
        work.push_back(sum);
      }
    }
    fill_costs();
  }

  std::vector<ReadingBatch> solve() {
    const size_t units = ends_.size() - 1, instances = instances_.size();
    const size_t width = instances + 1;
    std::vector<double> best((units + 1) * width, never);
    std::vector<std::pair<size_t, size_t>> from(best.size());
    for (size_t k = 0; k < width; ++k) best[k] = 0;
    for (size_t k = 1; k < width; ++k)
      for (size_t i = 1; i <= units; ++i) {
        double& least = best[i * width + k];
        least = best[i * width + k - 1];
        from[i * width + k] = {i, k - 1};
        for (size_t degree = limits_.least; degree <= std::min(k, times_.size()); ++degree)
          for (size_t j = i; j-- > 0;) {
            const size_t l = k - degree;
            if (slots_[i] - slots_[j] > free_[k] - free_[l]) break;  // with more prompts, too
            const double cost = best[j * width + l] + costs_[cost_at(j, i, degree)];
            if (cost < least) least = cost, from[i * width + k] = {j, l};
          }
      }
    std::vector<ReadingBatch> batches;
    if (best.back() == never) return batches;
    for (size_t i = units, k = instances; i > 0;) {
      const auto [j, l] = from[i * width + k];
      if (j < i) {
        ReadingBatch& batch = batches.emplace_back();
        batch.prompts.assign(order_.begin() + ends_[j], order_.begin() + ends_[i]);
        batch.instances.assign(instances_.begin() + l, instances_.begin() + k);
        batch.seconds = seconds(j, i, k - l);
      }
      i = j, k = l;
    }
    std::ranges::reverse(batches);
    return batches;
  }

 private:
  /// Each unit has one prompt, or short ones that are together no more than a share of the whole.
  void make_units() {
    int64_t all = 0, tokens = 0;
    for (const PromptToRead& prompt : prompts_) all += prompt.tokens;
    const size_t most = std::max(fewest_units, units_of_an_instance * instances_.size());
    const int64_t share = prompts_.size() <= most ? 0 : all / static_cast<int64_t>(most);
    for (size_t i = 0; i < order_.size(); ++i) {
      const PromptToRead& prompt = prompts_[order_[i]];
      if (ends_.empty() || tokens + prompt.tokens > share) {
        ends_.push_back(i);
        slots_.push_back(i == 0 ? 0 : slots_sum_);
        weights_.push_back(weight_sum_);
        tokens = 0;
      }
      tokens += prompt.tokens;
      slots_sum_ += prompt.slots, weight_sum_ += prompt.weight;
    }
    ends_.push_back(order_.size());
    slots_.push_back(slots_sum_), weights_.push_back(weight_sum_);
  }

  double seconds(size_t begin, size_t end, size_t degree) const {
    const PassWork &to = work_[degree - 1][end], &before = work_[degree - 1][begin];
    return seconds_of(
        times_[degree - 1],
        {0, to.rows - before.rows, to.pairs - before.pairs, to.cached - before.cached},
        static_cast<int>(degree), limits_.rows_per_instance);
  }
  size_t cost_at(size_t begin, size_t end, size_t degree) const {
    return ((degree - 1) * ends_.size() + end) * ends_.size() + begin;
  }
  /// Each is asked for with every number of instances before.
  void fill_costs() {
    costs_.resize(times_.size() * ends_.size() * ends_.size());
    for (size_t degree = limits_.least; degree <= times_.size(); ++degree)
      for (size_t end = 1; end < ends_.size(); ++end)
        for (size_t begin = 0; begin < end; ++begin)
          costs_[cost_at(begin, end, degree)] =
              seconds(begin, end, degree) * (goal_ == ReadingGoal::mean
                                                 ? weights_[end] - weights_[begin]
                                                 : static_cast<double>(degree));
  }

  const std::vector<PromptToRead>& prompts_;
  ReadingGoal goal_;
  const BatchLimits& limits_;
  std::vector<size_t> order_, instances_;
  std::vector<size_t> ends_;     ///< [units + 1] in order_
  std::vector<int64_t> slots_;   ///< [units + 1] of the prompts before
  std::vector<double> weights_;  ///< likewise
  int64_t slots_sum_ = 0;
  double weight_sum_ = 0;
  std::vector<int64_t> free_;                ///< [instances + 1] of the instances before
  std::vector<DegreeTimes> times_;           ///< [degree − 1]
  std::vector<std::vector<PassWork>> work_;  ///< [degree − 1, units + 1] of the units before
  std::vector<double> costs_;                ///< of a batch of the units [begin, end), at cost_at
};

std::vector<ReadingBatch> solve(const TeamTimes& times, const std::vector<PromptToRead>& prompts,
                                const std::vector<size_t>& which,
                                const std::vector<int64_t>& free_slots,
                                const std::vector<size_t>& on, ReadingGoal goal,
                                const BatchLimits& limits) {
  std::vector<PromptToRead> own;
  std::vector<int64_t> free;
  for (const size_t prompt : which) own.push_back(prompts[prompt]);
  for (const size_t instance : on) free.push_back(free_slots[instance]);
  std::vector<ReadingBatch> batches;
  for (; !own.empty() && batches.empty(); own.pop_back())
    batches = Program(times, own, free, goal, limits).solve();
  for (ReadingBatch& batch : batches) {
    for (size_t& prompt : batch.prompts) prompt = which[prompt];
    for (size_t& instance : batch.instances) instance = on[instance];
  }
  return batches;
}

/// Instances that have prompts of their own.
struct Part {
  std::vector<size_t> instances, prompts;
  int64_t slots = 0;  ///< left
  double work_s = 0;  ///< of each instance
};

/// Deals instances and prompts to parts of a few instances. A prompt that is too large for these
/// has a part of its own, with at least its share of the instances.
std::vector<Part> parts_of(const TeamTimes& times, const std::vector<PromptToRead>& prompts,
                           const std::vector<int64_t>& free_slots, const BatchLimits& limits) {
  std::vector<size_t> instances(free_slots.size());
  std::iota(instances.begin(), instances.end(), size_t{0});
  std::ranges::stable_sort(instances, std::ranges::greater(),
                           [&](size_t i) { return free_slots[i]; });
  const DegreeTimes alone = times.of(1, PassKind::prefill);
  std::vector<double> work_s;
  for (const PromptToRead& prompt : prompts)
    work_s.push_back(seconds_of(alone, whole_work(prompt.tokens, 1, limits.rows_per_instance), 1,
                                limits.rows_per_instance));
  const double all_s = std::accumulate(work_s.begin(), work_s.end(), 0.0);
  const size_t of_a_part = std::max<size_t>(instances_of_a_part, limits.least);
  std::vector<Part> parts;
  auto next = instances.begin();
  const auto take = [&](Part& part) {
    part.instances.push_back(*next);
    part.slots += free_slots[*next++];
  };
  std::vector<size_t> small;
  for (size_t i = 0; i < prompts.size(); ++i) {
    int64_t room = 0;  // of the part that would come next
    for (auto at = next; at != instances.end() && at - next < static_cast<ptrdiff_t>(of_a_part);
         ++at)
      room += free_slots[*at];
    if (prompts[i].slots <= room) {
      small.push_back(i);
      continue;
    }
    const auto share =
        static_cast<size_t>(work_s[i] / all_s * static_cast<double>(instances.size()));
    Part part;
    while (next != instances.end() && std::ssize(part.instances) < limits.most &&
           (part.slots < prompts[i].slots || part.instances.size() < share))
      take(part);
    if (part.slots < prompts[i].slots) {
      next -= std::ssize(part.instances);
      continue;
    }
    part.prompts = {i};
    parts.push_back(std::move(part));
  }
  const size_t first = parts.size();
  while (next != instances.end()) {
    Part& part = parts.emplace_back();
    while (next != instances.end() && part.instances.size() < of_a_part) take(part);
  }
  std::ranges::stable_sort(small, std::ranges::greater(),
                           [&](size_t i) { return prompts[i].slots; });
  for (const size_t prompt : small) {
    Part* chosen = nullptr;
    for (size_t i = first; i < parts.size(); ++i)
      if (parts[i].slots >= prompts[prompt].slots &&
          (chosen == nullptr || parts[i].work_s < chosen->work_s))
        chosen = &parts[i];
    if (chosen == nullptr) continue;
    chosen->prompts.push_back(prompt);
    chosen->slots -= prompts[prompt].slots;
    chosen->work_s += work_s[prompt] / static_cast<double>(chosen->instances.size());
  }
  return parts;
}

}  // namespace

double reading_s(const TeamTimes& times, const std::vector<PromptToRead>& prompts, int degree,
                 int64_t rows_per_instance) {
  PassWork work;
  for (const PromptToRead& prompt : prompts)
    work += whole_work(prompt.tokens, degree, rows_per_instance);
  return seconds_of(times.of(degree, PassKind::prefill), work, degree, rows_per_instance);
}

std::vector<ReadingBatch> read_in_batches(const TeamTimes& times,
                                          const std::vector<PromptToRead>& prompts,
                                          const std::vector<int64_t>& free_slots, ReadingGoal goal,
                                          const BatchLimits& limits) {
  PECIA_CHECK(!prompts.empty() && std::ssize(free_slots) <= times.degrees(),
              "{} prompts for {} instances, times are of {}", prompts.size(), free_slots.size(),
              times.degrees());
  if (std::ssize(free_slots) < limits.least) return {};
  if (free_slots.size() > most_instances) {
    std::vector<ReadingBatch> batches;
    for (const Part& part : parts_of(times, prompts, free_slots, limits))
      std::ranges::move(
          solve(times, prompts, part.prompts, free_slots, part.instances, goal, limits),
          std::back_inserter(batches));
    return batches;
  }
  std::vector<size_t> which, on(free_slots.size());
  std::iota(on.begin(), on.end(), size_t{0});
  int64_t left = std::accumulate(free_slots.begin(), free_slots.end(), int64_t{0});
  for (size_t i = 0; i < prompts.size() && prompts[i].slots <= left; ++i) {
    which.push_back(i);
    left -= prompts[i].slots;
  }
  return solve(times, prompts, which, free_slots, on, goal, limits);
}

}  // namespace pecia::schedule
