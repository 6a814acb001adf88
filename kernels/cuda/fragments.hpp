// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Who holds what in a matrix product of a warp, d[16×8] += a[16×16] · b[16×8]
/// (PTX ISA, mma.m16n8k16 with 16-bit operands). Registers of `a` and `b` hold two elements, at the
/// column or row given and the next.

#include "kernels/cuda/host_device.hpp"

namespace pecia::kernels::cuda {

struct Place {
  int row, column;
};

/// First element of register 0 … 3 of `a`.
PECIA_HD Place a_place(int lane, int reg) {
  return {lane / 4 + 8 * (reg % 2), 2 * (lane % 4) + 8 * (reg / 2)};
}

/// First element of register 0 … 1 of `b`; the second is in the next row.
PECIA_HD Place b_place(int lane, int reg) {
  return {2 * (lane % 4) + 8 * reg, lane / 4};
}

/// Element 0 … 3 of `d`.
PECIA_HD Place d_place(int lane, int element) {
  return {lane / 4 + 8 * (element / 2), 2 * (lane % 4) + element % 2};
}

/// Which row of shared memory a lane names when it loads the `a` registers of a matrix stored by
/// rows: 8 elements from `column` of the matrix's `row`.
PECIA_HD Place a_row(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix % 2) + lane % 8, 8 * (matrix / 2)};
}

/// Which row of shared memory a lane names when it loads the `b` registers of two products next to
/// each other, columns 0 … 7 and 8 … 15: registers 0, 1 belong to the first, 2, 3 to the second.
/// `b` stored by columns (keys, as the right-hand side of q · kᵀ): a row of memory is 8 elements of
/// depth, from `column`, of the product's column `row`.
PECIA_HD Place b_row_by_columns(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix / 2) + lane % 8, 8 * (matrix % 2)};
}
/// `b` stored by rows (values, as the right-hand side of weights · v), loaded transposed: a row of
/// memory is 8 of the product's columns, from `column`, at the depth `row`.
PECIA_HD Place b_row_by_rows(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix % 2) + lane % 8, 8 * (matrix / 2)};
}

/// With fp8 in shared memory a row of a matrix is 16 codes instead of 8 elements, so the products
/// take depth and columns in another order, which costs nothing: a register of loaded keys holds
/// the codes of four neighbouring places of depth, of which a product wants two pairs; one of
/// loaded values has two neighbouring columns of two keys, which go to two products.
///
/// Depth of the query elements that register 0 … 3 of `a` has to hold, first of two:
PECIA_HD int fp8_depth(int lane, int reg) {
  return 4 * (lane % 4) + 2 * (reg / 2);
}
/// Which of 16 columns element 0 … 3 of `d` belongs to, of product 0 or 1.
PECIA_HD int fp8_column(int lane, int element, int product) {
  return 2 * d_place(lane, element).column + product;
}
/// Row of shared memory, and first code in it, that a lane names: of keys, 16 of them (matrices 0,
/// 1 and 2, 3) and two steps of depth; of values, 16 keys (matrices 0, 2 and 1, 3) and two times 16
/// columns.
PECIA_HD Place fp8_row_of_keys(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix / 2) + lane % 8, 16 * (matrix % 2)};
}
PECIA_HD Place fp8_row_of_values(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix % 2) + lane % 8, 16 * (matrix / 2)};
}

}  // namespace pecia::kernels::cuda
