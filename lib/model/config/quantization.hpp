// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a checkpoint stores matrices as codes, by quantization_config of config.json.

#include <cstdint>
#include <optional>
#include <string>

#include "lib/base/core/dtype.hpp"

namespace pecia::model {

class JsonSection;

/// Where the codes of a matrix [out, in] and what they mean are, in words of 32 bits for codes of 4 or 8,
/// here of 4:
///
///     mxfp4    see packed_experts.hpp
///     gptq     M.qweight [in / 8, out], M.qzeros [groups, out / 8], M.scales [groups, out],
///              M.g_idx [in]; input 8·r + j of an output is in the bits 4·j of word r
///     awq      M.qweight [in, out / 8], M.qzeros [groups, out / 8], M.scales [groups, out]; the
///              bits 4·j of a word have output 8·c + (0 2 4 6 1 3 5 7)[j]
///     packed   M.weight_packed [out, in / 8], M.weight_scale [out, groups], M.weight_shape [2],
///              M.weight_zero_point [out / 8, groups] where there are zero points
/// Codes of 8 bits of gptq and packed are four in a word instead of eight.
///
///     int8     M.weight [out, in], M.weight_scale [out, 1], [1] or []
///     fp8      M.weight [out, in], and M.weight_scale [out, 1], [1] or [], or of blocks in
///              M.weight_scale or M.weight_scale_inv
///     nvfp4    M.weight_packed [out, in / 2], two codes of FP4 (codes.hpp) in a byte, the lower four
///              bits first; M.weight_scale [out, in / 16] in fp8, M.weight_global_scale [1]:
///              number = FP4[code] · scale / global. As modelopt writes it: M.weight, M.weight_scale
///              and M.weight_scale_2 []: number = FP4[code] · scale · scale_2
///
/// A number is scale · (code − zero). In gptq stored zeros may be one less than they mean.
enum class StoredForm : uint8_t { mxfp4, gptq, awq, packed, int8, fp8, nvfp4 };

struct StoredQuantization {
  StoredForm form = StoredForm::mxfp4;
  int bits = 4;        ///< of codes in words
  int64_t group = 0;   ///< numbers of a row with common scale and zero; 0: all
  bool zeros = false;  ///< zeros are stored; else a code's middle is zero
  bool zeros_less_one = false;
  bool reordered = false;                     ///< the numbers of a group are not neighbours
  int64_t block_rows = 0, block_columns = 0;  ///< of fp8 in blocks
  bool by_modelopt = false;                   ///< names and factor of nvfp4

  std::string name() const;
  /// The type of codes that holds the numbers; absent if none does.
  std::optional<DType> code() const;
  /// What int4 calls shared_by (codes.hpp).
  int64_t shared_by() const;
};

/// Reads quantization_config or compression_config. Lists of modules that are left out are not read,
/// since the types of a module's tensors say whether it is. Throws Unsupported naming the key and the value
/// that are not implemented. `beside`: hf_quant_config.json, in which older checkpoints of modelopt say
/// it; null if there is none. `packed_experts`: the family packs experts into a tensor.
std::optional<StoredQuantization> read_quantization(const JsonSection& file,
                                                    const JsonSection* beside, bool packed_experts);

}  // namespace pecia::model
