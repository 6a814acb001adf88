// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells which lane holds what in a matrix product of a warp, d[16×8] += a[16×16] · b[16×8] (PTX
/// ISA, mma.m16n8k16 with 16-bit operands). Registers of `a` and `b` hold two elements, at the
/// column or row given and the next.

#include "kernels/cuda/shared/host_device.hpp"

namespace pecia::kernels::cuda {

struct Place {
  int row, column;
};

/// Returns the place of the first element of register 0 … 3 of `a`.
PECIA_HD Place a_place(int lane, int reg) {
  return {lane / 4 + 8 * (reg % 2), 2 * (lane % 4) + 8 * (reg / 2)};
}

/// Returns the place of the first element of register 0 … 1 of `b`. The second is in the next row.
PECIA_HD Place b_place(int lane, int reg) {
  return {2 * (lane % 4) + 8 * reg, lane / 4};
}

/// Returns the place of element 0 … 3 of `d`.
PECIA_HD Place d_place(int lane, int element) {
  return {lane / 4 + 8 * (element / 2), 2 * (lane % 4) + element % 2};
}

/// Return the same places in a product of TF32, d[16×8] += a[16×8] · b[8×8] (mma.m16n8k8), whose
/// registers hold one element. d is as above.
PECIA_HD Place a_place_of_tf32(int lane, int reg) {
  return {lane / 4 + 8 * (reg % 2), lane % 4 + 4 * (reg / 2)};
}
PECIA_HD Place b_place_of_tf32(int lane, int reg) {
  return {lane % 4 + 4 * reg, lane / 4};
}

/// Returns the row of shared memory that a lane names when it loads the `a` registers of a matrix
/// stored by rows. It is 8 elements from `column` of the matrix's `row`.
PECIA_HD Place a_row(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix % 2) + lane % 8, 8 * (matrix / 2)};
}

/// Returns the row of shared memory that a lane names when it loads the `b` registers of two
/// products next to each other, columns 0 … 7 and 8 … 15. Registers 0 and 1 belong to the first
/// product, 2 and 3 to the second. `b` is stored by columns (keys, as the right-hand side of
/// q · kᵀ). A row of memory is 8 elements of depth, from `column`, of the product's column `row`.
PECIA_HD Place b_row_by_columns(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix / 2) + lane % 8, 8 * (matrix % 2)};
}
/// Does the same for `b` stored by rows (values, as the right-hand side of weights · v) and loaded
/// transposed. A row of memory is 8 of the product's columns, from `column`, at the depth `row`.
PECIA_HD Place b_row_by_rows(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix % 2) + lane % 8, 8 * (matrix / 2)};
}

/// With fp8 in shared memory a row of a matrix is 16 codes instead of 8 elements. So the products
/// take depth and columns in another order, which costs nothing. A register of loaded keys holds
/// the codes of four neighbouring places of depth, of which a product wants two pairs. A register
/// of loaded values has two neighbouring columns of two keys, which go to two products.
///
/// This function returns the depth of the query elements that register 0 … 3 of `a` has to hold,
/// for the first of two.
PECIA_HD int fp8_depth(int lane, int reg) {
  return 4 * (lane % 4) + 2 * (reg / 2);
}
/// Returns which of 16 columns element 0 … 3 of `d` belongs to, in product 0 or 1.
PECIA_HD int fp8_column(int lane, int element, int product) {
  return 2 * d_place(lane, element).column + product;
}
/// Return the row of shared memory that a lane names, and the first code in it. For keys these are
/// 16 keys (matrices 0, 1 and 2, 3) and two steps of depth. For values these are 16 keys (matrices
/// 0, 2 and 1, 3) and two times 16 columns.
PECIA_HD Place fp8_row_of_keys(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix / 2) + lane % 8, 16 * (matrix % 2)};
}
PECIA_HD Place fp8_row_of_values(int lane) {
  const int matrix = lane / 8;
  return {8 * (matrix % 2) + lane % 8, 16 * (matrix / 2)};
}

}  // namespace pecia::kernels::cuda
