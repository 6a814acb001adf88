// SPDX-License-Identifier: Apache-2.0
#include "lib/machines/efficiency.hpp"

#include <algorithm>
#include <cmath>

#include "lib/core/error.hpp"

namespace pecia::machines {

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

double Curve::at(double size) const {
  PECIA_CHECK(!points.empty(), "a curve over {} has no point", name_of(axis));
  const auto after = std::ranges::upper_bound(points, size, {}, &Point::size);
  if (after == points.begin()) return points.front().share;
  if (after == points.end()) return points.back().share;
  const Point &low = *std::prev(after), &high = *after;
  const double way = std::log(size / low.size) / std::log(high.size / low.size);
  return low.share + way * (high.share - low.share);
}

double Efficiency::of(const Size& size) const {
  double share = factor;
  for (const Curve& curve : curves) share *= curve.at(size.along(curve.axis));
  return share;
}

}  // namespace pecia::machines
