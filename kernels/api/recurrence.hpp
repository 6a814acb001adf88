// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/row_invariant.hpp"
#include "kernels/api/state_rows.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// A linear recurrence over rows of sequences. Each head has a state S [key_dim, value_dim], which
/// for each row decays, takes the row in, and is read:
///
///     S ← e^decay · S
///     S ← S + k ⊗ strength · (v − Sᵀk)      where it corrects, else  S + k ⊗ strength · v
///     out = Sᵀq + skip · v
///
/// With the correction it is the gated delta rule: Yang, Kautz, Hatamizadeh, "Gated Delta Networks:
/// Improving Mamba2 with Delta Rule" (arXiv 2412.06464), equation 10. Without, it is Mamba-2's: Dao
/// and Gu, "Transformers are SSMs" (arXiv 2405.21060), §2.1, with k = B, q = C, strength = Δ,
/// decay = Δ·A, skip = D.
///
/// Head h reads key head ⌊h · key_heads / heads⌋. With RowInvariant::yes what a row gives does not depend
/// on how many rows a call has: passes of any lengths give the same bits. NaN and infinities stay in the
/// state. Otherwise rows may be taken in several at a time: then bits depend on where an item begins, an
/// infinity may become NaN, and NaN in a row may reach rows up to 63 before it, in its own column.
///
/// The same op composes segments, S_out = M S_in + U: from a state of zero it leaves U, and from the
/// identity, with absent v, it leaves M.
struct RecurrenceArgs {
  /// [rows, key_heads, key_dim] fp32; q is absent where out is. Heads may be one axis with their
  /// elements here, in v and in out, so that these may be ranges of the columns of wider tensors.
  TensorView q, k;
  TensorView v;         ///< [rows, heads, value_dim] fp32; absent: zero
  TensorView decay;     ///< [rows, heads] fp32, 0 or less: natural logarithms
  TensorView strength;  ///< [rows, heads] fp32
  bool corrects;
  std::span<const StateRows> items;
  /// [states, heads, key_dim, value_dim] fp32, read and written. Axis 0 may be strided.
  TensorView states;
  TensorView out;        ///< [rows, heads, value_dim] fp32, written; absent: only the states matter
  TensorView skip = {};  ///< [heads] fp32; absent: zero
  RowInvariant row_invariant = RowInvariant::no;
  /// fp32, or the type that products with weights beside the recurrence round to: rows that are taken in
  /// together may then be rounded to TF32, for their products alone. States stay fp32.
  DType products = DType::fp32;

  int64_t heads() const { return states.size(1); }
  int64_t key_dim() const { return states.size(2); }
  int64_t value_dim() const { return states.size(3); }
  int64_t key_heads() const { return k.row_elements() / key_dim(); }
};

/// How long a recurrence of many rows takes: by it callers decide how many heads to compute in one call.
struct RecurrencePace {
  double row_s = 0;          ///< seconds of a row, of up to `heads_at_once` heads; 0: not known
  double heads_at_once = 1;  ///< of more heads, a row takes so much longer
};

}  // namespace pecia::kernels
