// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which matrices a checkpoint stores as codes (lib/base/core/codes.hpp), and where they stay codes.
///
/// A code stays a code where the products take it and no cut divides a block of codes. Elsewhere the
/// matrix becomes numbers when the model is loaded.

#include <optional>
#include <string>

#include "lib/model/weights/matrix_role.hpp"

namespace pecia::model {

/// How the codes of a checkpoint are used.
struct CodeUse {
  bool kept = true;  ///< false: all become numbers
  /// Into how many equal parts the rows of a matrix are cut, by ranks or by the splits of a sum.
  int row_parts = 1;
  bool whole_experts = false;  ///< experts are dealt out, and not cut
  bool stored_fp8 = false;     ///< products take codes of fp8 as they are stored, as those of GPUs

  bool operator==(const CodeUse&) const = default;
};

/// What sp · tp ranks that cut the weights keep. With `layout` sums have the splits of
/// parallel::layout_splits. With `ep` above 1 experts are dealt out. `gpus`: the ranks compute on GPUs.
CodeUse codes_kept(const ModelConfig& config, int cut_ranks, bool layout, int ep, bool gpus);

/// Whether matrices of this kind are stored as codes, but for modules that the model leaves out.
bool is_stored_as_codes(const ModelConfig& config, MatrixKind kind);

/// The type of codes in which they are resident; absent if they are numbers.
std::optional<DType> resident_code(const ModelConfig& config, MatrixKind kind, const CodeUse& use);

/// Why matrices that are stored as codes are resident as numbers; "" if they are not.
std::string why_widened(const ModelConfig& config, MatrixKind kind, const CodeUse& use);

/// The scales of a resident row of `numbers` numbers of fp8 that were stored so.
int64_t stored_fp8_scales(const StoredQuantization& quantization, int64_t numbers);

/// The bytes of a resident row of `numbers` numbers of a type, with the scales that the model's
/// codes have.
int64_t resident_row_bytes(const ModelConfig& config, DType type, int64_t numbers);

/// Bytes of the matrices of all layers and experts, or of those that a token meets, less what they
/// would be if none were codes but all `numbers`. It is negative where codes save memory.
int64_t bytes_by_codes(const ModelConfig& config, DType numbers, const CodeUse& use);
int64_t active_bytes_by_codes(const ModelConfig& config, DType numbers, const CodeUse& use);

}  // namespace pecia::model
