// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/op_rates.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace pecia::measure {
namespace {

using cluster_files::Axis;
using cluster_files::Curve;

Curve curve(Axis axis, const std::vector<int64_t>& sizes,
            const std::function<double(int64_t size)>& rate) {
  Curve curve{axis, {}};
  for (const int64_t size : sizes) curve.points.push_back({static_cast<double>(size), rate(size)});
  return curve;
}

}  // namespace

OpRates::OpRates(comm::Communicator& world, const attention::Compute& compute, OpSizes sizes)
    : timer_(world, compute, sizes.cache_bytes),
      sizes_(std::move(sizes)),
      has_others_(world.size() > 1),
      smallest_s_(smallest_op()) {}

double OpRates::smallest_op_in_step() {
  return best({'i'}, [&] { return timer_.smallest_in_step(); });
}

double OpRates::op_and_wait() {
  return best({'o'}, [&] { return timer_.smallest_and_wait(); });
}

std::vector<RatesBySize> OpRates::products() {
  const auto rate = [&](int64_t r, int64_t d, int64_t w) {
    const double seconds = best({'p', r, d, w}, [&] { return timer_.product(r, d, w); });
    return 2.0 * static_cast<double>(r * d * w) / beside_op(seconds);
  };
  const auto [rows, depth, width] =
      std::tuple(sizes_.usual_rows, sizes_.usual_depth, sizes_.usual_width);
  return {{curve(Axis::rows, sizes_.rows, [&](int64_t r) { return rate(r, depth, width); }),
           static_cast<double>(rows)},
          {curve(Axis::depth, sizes_.depths, [&](int64_t d) { return rate(rows, d, width); }),
           static_cast<double>(depth)},
          {curve(Axis::width, sizes_.widths, [&](int64_t w) { return rate(rows, depth, w); }),
           static_cast<double>(width)}};
}

std::vector<cluster_files::Slice> OpRates::attention() {
  const AttentionShape& heads = sizes_.attention;
  const auto rate = [&](int64_t rows, int64_t depth) {
    const int64_t cached = depth - (rows + 1) / 2;
    const double seconds =
        best({'a', rows, depth}, [&] { return timer_.attention(heads, rows, cached); });
    const double pairs = static_cast<double>(rows) * (cached + 0.5 * (rows + 1.0));
    return 4 * pairs * static_cast<double>(heads.num_heads * heads.head_dim) / beside_op(seconds);
  };
  std::vector<cluster_files::Slice> slices;
  for (const int64_t depth : sizes_.attention_depths) {
    Curve by_rows{Axis::rows, {}};
    for (const int64_t rows : sizes_.attention_rows)
      if (rows < 2 * depth) by_rows.points.push_back({1.0 * rows, rate(rows, depth)});
    slices.push_back({1.0 * depth, std::move(by_rows)});
  }
  return slices;
}

double OpRates::recurrence() {
  constexpr int64_t rows = 512, heads = 32, value_dim = 128;
  const double seconds =
      best({'r', heads}, [&] { return timer_.recurrence(rows, heads, value_dim); });
  return 6.0 * static_cast<double>(rows * heads * value_dim * OpTimer::recurrent_key_dim) /
         beside_op(seconds);
}

double OpRates::recurrent_row_s() {
  constexpr int64_t rows = 512, few_columns = 16;
  const double seconds = best({'r', 1}, [&] { return timer_.recurrence(rows, 1, few_columns); });
  return beside_op(seconds) / static_cast<double>(rows);
}

RatesBySize OpRates::stream() {
  const AttentionShape& heads = sizes_.stream;
  const int64_t per_key = 2 * heads.num_kv_heads * heads.head_dim * size_of(heads.kv_dtype);
  return {curve(Axis::bytes, sizes_.stream_bytes, [&](int64_t bytes) {
    const double seconds =
        best({'s', bytes}, [&] { return timer_.attention(heads, 1, bytes / per_key - 1); });
    return static_cast<double>(bytes) / beside_op(seconds);
  })};
}

RatesBySize OpRates::weights() {
  const int64_t depth = sizes_.usual_depth;
  const auto rate = [&](int64_t bytes) {
    const int64_t width = bytes / (depth * size_of(DType::bf16));
    const double seconds =
        best({'p', 1, depth, width}, [&] { return timer_.product(1, depth, width); });
    return static_cast<double>(bytes) / beside_op(seconds);
  };
  return {curve(Axis::bytes, sizes_.weights_bytes, rate),
          static_cast<double>(sizes_.usual_weights_bytes())};
}

RatesBySize OpRates::pieces() {
  constexpr int64_t parts = 2, bytes = 2 << 20;
  return {curve(Axis::bytes, {256, 512, 1024, 2048, 4096}, [&](int64_t piece) {
    const int64_t depth = piece / size_of(DType::bf16), width = bytes / piece;
    const double dense_s =
        best({'p', 1, depth, width}, [&] { return timer_.product(1, depth, width); });
    const double slice_s =
        best({'c', depth, width}, [&] { return timer_.product_of_slice(depth, width, parts); });
    return beside_op(dense_s) / beside_op(slice_s);
  })};
}

double OpRates::exchange_s() {
  exchanges_s_.push_back(timer_.all_reduce() / 2);
  return mean_of_middle_half(exchanges_s_);
}

OpRates::Shared OpRates::products_of(int64_t rows) {
  constexpr int pairs_of_round = 50;
  Stretches& all = stretches_[rows];
  all.add(timer_.stretches(rows, sizes_.usual_depth, sizes_.usual_width, pairs_of_round));
  const double best_s = best({'p', rows, sizes_.usual_depth, sizes_.usual_width}, [&] {
    return timer_.product(rows, sizes_.usual_depth, sizes_.usual_width);
  });
  return {lasting_share(all, best_s), has_others_ ? gain_alone(all) : 1};
}

RatesBySize OpRates::elementwise() {
  return {curve(Axis::bytes, sizes_.copies_bytes, [&](int64_t bytes) {
    return static_cast<double>(bytes) / beside_op(elementwise_s(bytes));
  })};
}

double OpRates::best(const Key& key, const std::function<double()>& measure) {
  double& found = found_.try_emplace(key, std::numeric_limits<double>::infinity()).first->second;
  return found = std::min(found, measure());
}

double OpRates::elementwise_s(int64_t bytes) {
  return best({'e', bytes}, [&] { return timer_.elementwise(bytes); });
}

double OpRates::beside_op(double seconds) const {
  return std::max(seconds - smallest_s_, 0.1 * seconds);
}

}  // namespace pecia::measure
