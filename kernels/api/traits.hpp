// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What callers adapt to in a backend, as a value. Phantoms take it from a machine that is not here.

#include <functional>

#include "kernels/api/backend.hpp"

namespace pecia::kernels {

struct BackendTraits {
  std::function<DType(DType)> operand_type = {};         ///< Backend::operand_type; absent: fp32
  std::function<DType(DType, int64_t)> query_type = {};  ///< Backend::query_type; absent: fp32
  bool rounds_products = false;                          ///< Backend::rounds_products
  bool continues_attention = false;                      ///< Backend::continues_attention
  bool merges_attention = false;                         ///< Backend::merges_attention
  bool gains_by_fewer_ops = false;                       ///< Backend::gains_by_fewer_ops
  /// Backend::takes_gated_linear; absent: no
  std::function<bool(const GatedLinearArgs&)> takes_gated_linear = {};

  /// Whether `recurrence` takes these rows in together; absent: no
  std::function<bool(const RecurrenceArgs&)> takes_chunks = {};
  /// Backend::recurrence_pace; absent: not known
  std::function<RecurrencePace(int64_t, int64_t)> recurrence_pace = {};

  DType operands_of(DType weights) const {
    return operand_type ? operand_type(weights) : DType::fp32;
  }
  DType queries_of(DType keys, int64_t head_dim) const {
    return query_type ? query_type(keys, head_dim) : DType::fp32;
  }
};

/// The traits of `backend`, which must outlive them.
inline BackendTraits traits_of(const Backend& backend) {
  return {.operand_type = [&backend](DType weights) { return backend.operand_type(weights); },
          .query_type = [&backend](DType keys,
                                   int64_t head_dim) { return backend.query_type(keys, head_dim); },
          .rounds_products = backend.rounds_products(),
          .continues_attention = backend.continues_attention(),
          .merges_attention = backend.merges_attention(),
          .gains_by_fewer_ops = backend.gains_by_fewer_ops(),
          .takes_gated_linear =
              [&backend](const GatedLinearArgs& args) { return backend.takes_gated_linear(args); }};
}

}  // namespace pecia::kernels
