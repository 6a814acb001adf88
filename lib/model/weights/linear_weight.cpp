// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/linear_weight.hpp"

#include <algorithm>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"

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
  Part part{weight.slice_columns(begin / unit, count / unit), TensorView(), scales, factor};
  if (unit == 1 && scales && scales.rank() == 2 && scales.size(1) > 1) {
    PECIA_CHECK(
        begin % fp8_block == 0 && (count % fp8_block == 0 || begin + count == weight.size(1)),
        "columns [{}, {}) of blocks of {}", begin, begin + count, name_of(weight.dtype()));
    part.scales = scales.slice_columns(begin / fp8_block, fp8_blocks(count));
  }
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
    if (from < to)
      slice.parts.push_back({rows(part.weight), rows(part.bias), rows(part.scales), part.factor});
    first += part.weight.rows();
  }
  return slice;
}

namespace {
/// Makes `all` end with the rows of `next`, which must follow in memory; false if they do not.
bool append_rows(TensorView& all, const TensorView& next) {
  if (static_cast<bool>(all) != static_cast<bool>(next)) return false;
  if (!all) return true;
  const auto* const end =
      static_cast<const std::byte*>(all.data()) + all.elements() * size_of(all.dtype());
  if (!all.dense() || !next.dense() || all.dtype() != next.dtype() || all.rank() != next.rank() ||
      all.row_elements() != next.row_elements() || next.data() != end)
    return false;
  const int64_t rows = all.rows() + next.rows();
  all = all.rank() == 1 ? TensorView(all.data(), all.dtype(), {rows})
                        : TensorView(all.data(), all.dtype(), {rows, all.size(1)});
  return true;
}
}  // namespace

std::optional<LinearWeight> joined(std::initializer_list<const LinearWeight*> projections) {
  LinearWeight all;
  for (const LinearWeight* projection : projections) {
    if (projection->parts.size() != 1) return std::nullopt;
    const LinearWeight::Part& next = projection->parts.front();
    if (all.parts.empty()) {
      all.parts.push_back(next);
      continue;
    }
    LinearWeight::Part& joint = all.parts.front();
    if (joint.factor != next.factor || !append_rows(joint.weight, next.weight) ||
        !append_rows(joint.bias, next.bias) || !append_rows(joint.scales, next.scales))
      return std::nullopt;
  }
  return all;
}

LinearWeight slice_columns(const LinearWeight& weight, int64_t begin, int64_t count) {
  PECIA_CHECK(weight.blocks == LinearWeight::Blocks::rows, "columns of blocks of columns");
  LinearWeight slice;
  for (const LinearWeight::Part& part : weight.parts)
    slice.parts.push_back(part.columns(begin, count));
  return slice;
}

}  // namespace pecia::model
