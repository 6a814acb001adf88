// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/product_choice.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "lib/base/core/codes.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/settle/measure/kept_products.hpp"
#include "lib/work/resources/compute_place.hpp"

namespace pecia::measure {
namespace {

using kernels::CpuProducts;
using kernels::MatmulKind;

/// Geometric means between the numbers of rows that are measured both ways.
constexpr int64_t thresholds[] = {11, 22, 45, 90, 181};

double least_seconds(const std::vector<ProductTime>& times, int64_t rows) {
  double best = std::numeric_limits<double>::infinity();
  for (const ProductTime& time : times)
    if (time.rows == rows) best = std::min(best, time.seconds);
  return best;
}

/// Infinity where it was not measured.
double seconds_taken(const CpuProducts& products, const std::vector<ProductTime>& times,
                     int64_t rows) {
  const bool packed = rows > products.most_few.value_or(usual_most_few(products.many));
  MatmulKind kind = packed ? products.many : products.few;
  if (!packed && kind == MatmulKind::amx) kind = MatmulKind::bf16;
  for (const ProductTime& time : times)
    if (time.rows == rows && time.packed == packed && time.products == kind) return time.seconds;
  return std::numeric_limits<double>::infinity();
}

/// Its time over the best one, at the number of rows where it is slowest.
double worst_ratio(const CpuProducts& products, const std::vector<ProductTime>& times) {
  double worst = 0;
  for (const ProductTime& time : times)
    worst = std::max(worst,
                     seconds_taken(products, times, time.rows) / least_seconds(times, time.rows));
  return worst;
}

std::vector<MatmulKind> kinds_everywhere(comm::Communicator& world) {
  std::vector<MatmulKind> kinds;
  for (const MatmulKind kind : kernels::all_matmul_kinds)
    if (world.all_reduce_max(kernels::why_no_products(kind).empty() ? 0 : 1) == 0)
      kinds.push_back(kind);
  return kinds;
}

/// What rank 0 knows of the cache, for all ranks.
struct Known {
  uint8_t keeps = 0, there = 0;
  std::vector<ProductTime> times;
  std::string problem;  ///< why nothing can be kept

  template <typename A>
  void visit(A& archive) {
    archive(keeps), archive(there), archive(times), archive(problem);
  }
};

/// Measures now, and keeps it on rank 0.
Known measured_now(const std::string& key, const std::vector<MatmulKind>& kinds, DType weights,
                   const resources::Threads& threads, comm::Communicator& world) {
  Known known{1, 0, measure_products(kinds, weights, threads, world), {}};
  if (world.rank() == 0) {
    try {
      known.times = keep_products(key, known.times);
    } catch (const SystemError& error) {
      known.problem = error.what();
    }
  }
  return comm::of_first(world, known);
}

}  // namespace

CpuProducts best_products(const std::vector<ProductTime>& times, MatmulKind fixed, DType weights) {
  constexpr double least_gain = 1.05;
  CpuProducts best = fixed;
  double least = worst_ratio(fixed, times) / least_gain;
  const auto consider = [&](const CpuProducts& candidate) {
    const double ratio = worst_ratio(candidate, times);
    if (ratio < least) best = candidate, least = ratio;
  };
  for (const MatmulKind few : kernels::all_matmul_kinds)
    for (const MatmulKind many : kernels::all_matmul_kinds) {
      if (few == many) consider(few);
      if (few == MatmulKind::amx && many != MatmulKind::amx) continue;  // in place it is bf16
      if (few == many && is_code(weights)) continue;
      for (const int64_t threshold : thresholds) consider({few, many, threshold});
    }
  return best;
}

ProductChoice choose_products(const job::Job& job, DType weights, const resources::Threads& threads,
                              comm::Communicator& world, const std::string& kept) {
  ProductChoice choice;
  const MatmulKind fixed = resources::fixed_products(job, world);
  choice.products = fixed;
  const auto because = [&](const char* why) {
    choice.why = why;
    return choice;
  };
  if (job.model.compute) return because("by model.compute");
  const std::vector<MatmulKind> kinds = kinds_everywhere(world);
  const auto has = [&](MatmulKind kind) { return std::ranges::find(kinds, kind) != kinds.end(); };
  if (const auto began = parse_products(kept)) {
    if (has(began->few) && has(began->many)) {
      choice.products = *began;
      return because("as this run began");
    }
    choice.warning = fmt::format(
        "this run began with products of {}, which not every rank's CPU has: the bits of what "
        "follows are those of {}",
        kept, name_of(fixed));
  }
  if (job.reproducible == parallel::Reproducible::layout)
    return because("the usual ones, as reproducible: layout measures nothing");
  if (weights != DType::bf16 && weights != DType::int8 && weights != DType::int4 &&
      weights != DType::nvfp4)
    return because("weights are multiplied in fp32; keys of bf16 by these");
  Known known;
  const std::string key = products_key(world, kinds, weights, threads.count);
  if (world.rank() == 0) {
    known.keeps = keeps_products() ? 1 : 0;
    if (auto times = kept_products(key)) known.there = 1, known.times = std::move(*times);
  }
  known = comm::of_first(world, known);
  if (known.keeps == 0) return because("the usual ones, as nothing is kept between runs");
  choice.is_new = known.there == 0;
  if (choice.is_new) known = measured_now(key, kinds, weights, threads, world);
  if (!known.problem.empty()) {
    choice.warning = fmt::format(
        "which products are fastest cannot be kept for later runs, so the usual ones are taken: {}",
        known.problem);
    return because("the usual ones, as nothing can be kept");
  }
  if (known.times.empty()) return because("the usual ones, as measuring would take too long here");
  choice.times = known.times;
  choice.products = best_products(choice.times, fixed, weights);
  return because(choice.is_new ? "measured now" : "measured by an earlier run");
}

namespace {

std::optional<MatmulKind> named(std::string_view name) {
  for (const MatmulKind products : kernels::all_matmul_kinds)
    if (name_of(products) == name) return products;
  return {};
}

}  // namespace

std::string products_text(const CpuProducts& products) {
  if (!products.most_few) return std::string(name_of(products.many));
  return fmt::format("{} in place up to {} rows, then {}", name_of(products.few),
                     *products.most_few, name_of(products.many));
}

std::optional<CpuProducts> parse_products(const std::string& text) {
  if (const auto all = named(text)) return CpuProducts(*all);
  const std::string_view view = text;
  constexpr std::string_view up_to = " in place up to ", then = " rows, then ";
  const size_t first = view.find(up_to), second = view.find(then);
  if (first == view.npos || second == view.npos || second < first) return {};
  const auto few = named(view.substr(0, first)), many = named(view.substr(second + then.size()));
  const std::string_view digits = view.substr(first + up_to.size(), second - first - up_to.size());
  int64_t most_few = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), most_few);
  if (!few || !many || error != std::errc() || end != digits.data() + digits.size() || most_few < 0)
    return {};
  return CpuProducts{*few, *many, most_few};
}

std::string times_text(const std::vector<ProductTime>& times) {
  std::map<int64_t, std::map<MatmulKind, double>> by_rows;
  for (const ProductTime& time : times) {
    const auto [best, is_first] = by_rows[time.rows].emplace(time.products, time.seconds);
    best->second = std::min(best->second, time.seconds);
  }
  std::vector<std::string> parts;
  for (const auto& [rows, kinds] : by_rows) {
    std::vector<std::string> each;
    for (const auto& [kind, seconds] : kinds)
      each.push_back(fmt::format("{} {:.2f}", name_of(kind), 1e3 * seconds));
    parts.push_back(
        fmt::format("{} row{}: {} ms", rows, rows == 1 ? "" : "s", fmt::join(each, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace pecia::measure
