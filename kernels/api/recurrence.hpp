// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

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
/// Head h reads key head ⌊h · key_heads / heads⌋. What a row gives does not depend on how many rows a
/// call has: passes of any lengths give the same bits. NaN and infinities stay in the state.
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

  int64_t heads() const { return states.size(1); }
  int64_t key_dim() const { return states.size(2); }
  int64_t value_dim() const { return states.size(3); }
  int64_t key_heads() const { return k.row_elements() / key_dim(); }
};

}  // namespace pecia::kernels
