// SPDX-License-Identifier: Apache-2.0
#include "lib/work/cluster_files/efficiency.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia::cluster_files {

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::rows:
      return "rows";
    case Axis::depth:
      return "depth";
    case Axis::width:
      return "width";
    case Axis::bytes:
      return "bytes";
  }
  return "?";
}

double Size::along(Axis axis) const {
  switch (axis) {
    case Axis::rows:
      return rows;
    case Axis::depth:
      return depth;
    case Axis::width:
      return width;
    case Axis::bytes:
      return bytes;
  }
  return 0;
}

namespace {

/// Linear in the logarithm of the size, which ascends over the list; constant beyond its ends.
template <typename Each, typename SizeOf, typename ValueOf>
double between(const std::vector<Each>& list, double size, SizeOf size_of, ValueOf value_of) {
  const auto after = std::ranges::upper_bound(list, size, {}, size_of);
  if (after == list.begin()) return value_of(list.front());
  if (after == list.end()) return value_of(list.back());
  const double low = size_of(*std::prev(after)), high = size_of(*after);
  return std::lerp(value_of(*std::prev(after)), value_of(*after),
                   std::log(size / low) / std::log(high / low));
}

}  // namespace

double Curve::at(double size) const {
  PECIA_CHECK(!points.empty(), "a curve over {} has no point", name_of(axis));
  return between(
      points, size, [](const Point& point) { return point.size; },
      [](const Point& point) { return point.share; });
}

double Efficiency::of(const Size& size) const {
  double share = factor;
  for (const Curve& curve : curves) share *= curve.at(size.along(curve.axis));
  if (!slices.empty())
    share *= between(
        slices, size.depth, [](const Slice& slice) { return slice.depth; },
        [&](const Slice& slice) { return slice.rows.at(size.rows); });
  return share;
}

}  // namespace pecia::cluster_files
