// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear/linear_splits.hpp"

#include "kernels/cpu/linear/linear_tiles.hpp"
#include "lib/base/core/codes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear/linear_splits.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void AddPiece(const Piece& piece, const Target& from, const Target& to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t r = 0; r < piece.num_rows; ++r) {
    const float* const x = from.c + r * from.stride;
    float* const sum = to.c + r * to.stride;
    int64_t o = 0;
    for (; o + lanes <= piece.num_columns; o += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, sum + o), hn::LoadU(d, x + o)), d, sum + o);
    for (; o < piece.num_columns; ++o) sum[o] += x[o];
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
void require_row_invariant(const LinearArgs& args) {
  const DType type = args.weight.dtype();
  if (!is_code(type) || args.row_invariant == RowInvariant::no) return;
  if (type != DType::mxfp4 && type != DType::nvfp4)
    fail<Unsupported>("weights of {} have no products that are the same for every cut of a row",
                      name_of(type));
  PECIA_CHECK(args.splits == 1 || args.x.size(1) % (args.splits * numbers_of(type)) == 0,
              "{} splits of {} numbers in blocks of {}", args.splits, args.x.size(1),
              numbers_of(type));
}

HWY_EXPORT(AddPiece);

void put_bias(const LinearArgs& args, const Piece& piece, const Target& target) {
  if (!target.with_bias) return;
  begin_with_bias(args.bias, piece.column, piece.num_rows, piece.num_columns, target.c,
                  target.stride, target.with_c);
}

int64_t split_scratch_bytes(const LinearArgs& args, int64_t rows, int64_t columns) {
  const int levels = std::bit_width(static_cast<unsigned>(args.splits));
  return args.splits == 1 ? 0 : levels * Carver::bytes_of<float>(rows * columns);
}

void add_piece(const Piece& piece, const Target& from, const Target& to) {
  HWY_DYNAMIC_DISPATCH(AddPiece)(piece, from, to);
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
