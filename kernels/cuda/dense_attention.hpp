#pragma once
#include <memory>

#include "kernels/api/attention.hpp"
#include "lib/device/device.hpp"

namespace pecia::kernels::cuda {

/// Which keys the rows of a dense item see: row i of `rows` and key j of `keys`.
enum class DenseMask {
  full,          ///< all
  causal,        ///< j ≤ i
  causal_at_end  ///< j ≤ i + keys − rows: the rows are the last of the keys
};

/// One item whose keys lie in one run: what a library's attention takes.
struct DenseItem {
  AttentionItem item;
  KeyRun run;
  DenseMask mask;
};

/// Attention by a library, for items of bf16 or fp16 keys.
class DenseAttention {
 public:
  virtual ~DenseAttention() = default;
  /// Whether items of this kind are taken at all.
  virtual bool takes(const AttentionArgs& args, const DenseItem& item) = 0;
  /// Writes the item's rows of out and lse.
  virtual void run(const AttentionArgs& args, const DenseItem& item, device::Stream& stream) = 0;
};

}  // namespace pecia::kernels::cuda
