// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ops that only say what they would do, for tensors that have no contents
/// (lib/base/device/phantom_device.hpp).

#include <functional>
#include <memory>
#include <string_view>

#include "kernels/api/traits.hpp"

namespace pecia::kernels {

/// One call of an op.
struct OpWork {
  std::string_view name;  ///< "linear", "attention", …: as Backend has it
  DType dtype;       ///< of weights, or of keys and values; of the tensor that is read elsewhere
  int64_t rows = 0;  ///< of what is written; of experts, the rows that one of them multiplies
  double flops = 0;  ///< of products alone: 2 for each multiplication with its addition
  /// Each tensor once, but for a table or a cache: of these the rows that are looked up or written,
  /// and each key once for its item. Of experts, those that are touched if rows choose at random.
  int64_t bytes_read = 0, bytes_written = 0;
  /// Of ops with FLOPs: the type of what is multiplied; the elements that are summed for a product,
  /// or the keys that a row sees on average; and the columns that are written, or query heads ×
  /// head size.
  DType operands = DType::fp32;
  double depth = 0;
  int64_t width = 0;
  /// Of attention: rows that read the same keys, in the mean over pairs. Of experts: rows of each
  /// that has some, in the mean.
  double item_rows = 0;
  /// Of a product whose weights are a column slice: bytes of one of its rows, which lie apart; else 0.
  int64_t piece_bytes = 0;
  /// Of a recurrence: the most rows of a sequence, which are taken in one after the other. Heads and
  /// sequences go side by side.
  int64_t serial_rows = 0;
  /// Of a recurrence: rows of a sequence that are taken in together; 0: one. FLOPs and operands are then
  /// those of the products in chunks, each counted once.
  int64_t chunk_rows = 0;

  bool operator==(const OpWork&) const = default;
};

/// Whether the op multiplies rows with weights.
inline bool multiplies_weights(const OpWork& op) {
  return op.name == "linear" || op.name == "head_linear" || op.name == "gated_linear" ||
         op.name == "experts";
}

/// Checks arguments as the other backends do and tells `on_op` of every call; nothing is computed.
/// What is written to the host's memory is as if all logits were equal: token 0, or the one that
/// is wanted, with log-probability −log(vocabulary). `traits`: those of the backend that this stands
/// for.
std::unique_ptr<Backend> make_phantom_backend(std::function<void(const OpWork&)> on_op,
                                              BackendTraits traits = {});

}  // namespace pecia::kernels
