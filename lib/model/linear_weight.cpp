// SPDX-License-Identifier: Apache-2.0
#include "lib/model/linear_weight.hpp"

#include <algorithm>

#include "lib/core/codes.hpp"

namespace pecia::model {
namespace {

int64_t bytes_of(const TensorView& tensor) {
  return tensor ? tensor.elements() * size_of(tensor.dtype()) : 0;
}

}  // namespace

LinearWeight::Part LinearWeight::Part::columns(int64_t begin, int64_t count) const {
  const int64_t unit = numbers_of(weight.dtype());
  PECIA_CHECK(begin % unit == 0 && count % unit == 0, "columns [{}, {}) of {}", begin,
              begin + count, name_of(weight.dtype()));
  Part part{weight.slice_columns(begin / unit, count / unit), TensorView(), scales};
  if (unit == 1) return part;
  const int64_t of_each = scales.size(1) / weight.size(1);
  part.scales = scales.slice_columns(begin / unit * of_each, count / unit * of_each);
  return part;
}

int64_t LinearWeight::Part::in() const {
  return weight.size(1) * numbers_of(weight.dtype());
}

int64_t LinearWeight::Part::bytes() const {
  return bytes_of(weight) + bytes_of(bias) + bytes_of(scales);
}

int64_t LinearWeight::in() const {
  int64_t columns = 0;
  if (blocks == Blocks::rows) return parts.front().in();
  for (const Part& part : parts) columns += part.in();
  return columns;
}

int64_t LinearWeight::out() const {
  int64_t rows = 0;
  if (blocks == Blocks::columns) return parts.front().weight.rows();
  for (const Part& part : parts) rows += part.weight.rows();
  return rows;
}

int64_t LinearWeight::bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes();
  return bytes;
}

LinearWeight slice_rows(const LinearWeight& weight, int64_t begin, int64_t count) {
  PECIA_CHECK(weight.blocks == LinearWeight::Blocks::rows && begin >= 0 && count >= 0 &&
                  begin + count <= weight.out(),
              "rows [{}, {}) of {}", begin, begin + count, weight.out());
  LinearWeight slice;
  int64_t first = 0;  // first row of the part in the whole matrix
  for (const LinearWeight::Part& part : weight.parts) {
    const int64_t from = std::max(begin, first),
                  to = std::min(begin + count, first + part.weight.rows());
    const auto rows = [&](const TensorView& tensor) {
      return tensor ? tensor.slice_rows(from - first, to - from) : TensorView();
    };
    if (from < to) slice.parts.push_back({rows(part.weight), rows(part.bias), rows(part.scales)});
    first += part.weight.rows();
  }
  return slice;
}

std::optional<LinearWeight> joined(const LinearWeight& first, const LinearWeight& second) {
  for (const LinearWeight* weight : {&first, &second})
    if (weight->parts.size() != 1 || weight->parts.front().bias || weight->parts.front().scales ||
        !weight->parts.front().weight.dense())
      return std::nullopt;
  const TensorView &a = first.parts.front().weight, &b = second.parts.front().weight;
  const auto* const end =
      static_cast<const std::byte*>(a.data()) + a.elements() * size_of(a.dtype());
  if (a.dtype() != b.dtype() || a.size(1) != b.size(1) || b.data() != end) return std::nullopt;
  LinearWeight both;
  both.parts.push_back({TensorView(a.data(), a.dtype(), {a.rows() + b.rows(), a.size(1)}), {}});
  return both;
}

LinearWeight slice_columns(const LinearWeight& weight, int64_t begin, int64_t count) {
  PECIA_CHECK(weight.blocks == LinearWeight::Blocks::rows, "columns of blocks of columns");
  LinearWeight slice;
  for (const LinearWeight::Part& part : weight.parts)
    slice.parts.push_back(part.columns(begin, count));
  return slice;
}

}  // namespace pecia::model
