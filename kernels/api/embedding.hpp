#pragma once
#include <cstdint>
#include <span>

#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// out[t, :] = table[tokens[t], :], widened to fp32.
struct EmbeddingArgs {
  TensorView table;                 ///< [vocab, hidden], fp32, bf16 or fp16
  std::span<const int32_t> tokens;  ///< [rows], each in [0, vocab): the caller has checked
  TensorView out;                   ///< [rows, hidden] fp32, written
};

}  // namespace pecia::kernels
