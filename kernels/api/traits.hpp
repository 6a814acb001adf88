// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What callers adapt to in a backend, as a value. Phantoms take it from a machine that is not here.

#include <functional>

#include "kernels/api/backend.hpp"

namespace pecia::kernels {

struct BackendTraits {
  std::function<DType(DType)> operand_type = {};  ///< Backend::operand_type; absent: fp32
  bool continues_attention = false;               ///< Backend::continues_attention

  DType operands_of(DType weights) const {
    return operand_type ? operand_type(weights) : DType::fp32;
  }
};

/// Those of `backend`, which outlives them.
inline BackendTraits traits_of(const Backend& backend) {
  return {[&backend](DType weights) { return backend.operand_type(weights); },
          backend.continues_attention()};
}

}  // namespace pecia::kernels
