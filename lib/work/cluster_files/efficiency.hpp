// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which share of a machine's peak some work achieves, as a function of its size.

#include <optional>
#include <string_view>
#include <vector>

namespace pecia::cluster_files {

/// What a share may depend on. Products have rows, depth (elements that are summed) and width
/// (columns that are written). Attention has rows of queries that read the same keys, depth (keys that a row sees on
/// average) and width (query heads × head size). Copies and messages have bytes.
enum class Axis { rows, depth, width, bytes };

inline constexpr Axis axes[] = {Axis::rows, Axis::depth, Axis::width, Axis::bytes};

std::string_view name_of(Axis axis);

struct Size {
  double rows = 0, depth = 0, width = 0, bytes = 0;

  double along(Axis axis) const;
};

/// A number by size: linear in the logarithm of the size between points, and constant beyond them.
///
///     [[1, 0.1], [100, 0.5]]     0.1 up to size 1, 0.3 at 10, 0.5 from 100 on
struct Curve {
  struct Point {
    double size, share;
    bool operator==(const Point&) const = default;
  };

  Axis axis = Axis::rows;
  std::vector<Point> points;  ///< at least one, in ascending order of sizes above 0

  double at(double size) const;
  bool operator==(const Curve&) const = default;
};

/// A curve over rows for work of one depth.
struct Slice {
  double depth = 0;
  Curve rows;
  bool operator==(const Slice&) const = default;
};

/// A share: `factor` times the curves' values, and times the value of slices: linear in the logarithm
/// of the depth between two of them, and constant beyond. Without curves it is one number.
struct Efficiency {
  double factor = 1;
  std::vector<Curve> curves = {};
  std::vector<Slice> slices = {};  ///< in ascending order of depths above 0

  double of(const Size& size) const;
  bool operator==(const Efficiency&) const = default;
};

}  // namespace pecia::cluster_files
