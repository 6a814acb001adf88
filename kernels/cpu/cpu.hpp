// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops on the CPU, one file each. Arguments must be valid. The work is done when a call
/// returns.

#include <optional>

#include "kernels/api/backend.hpp"
#include "kernels/cpu/attention/attention_plan.hpp"
#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/products/packed_rows.hpp"
#include "kernels/cpu/products/weight_panels.hpp"
#include "kernels/cpu/shared/workspace.hpp"

namespace pecia::kernels::cpu {

/// Which kernel multiplies bf16, by the number of rows (CpuProducts). Null: products are fp32. The
/// kernels outlive the backend.
struct KernelsByRows {
  const Bf16Kernel *few, *many;
  std::optional<int64_t> most_few = {};
};
std::unique_ptr<Backend> make_backend(const KernelsByRows& kernels);

void embedding(const EmbeddingArgs& args, const device::Stream& stream);
/// Weights of fp32 or 16 bits are read in place for up to `most_few` rows, otherwise packed.
void linear(const LinearArgs& args, const device::Stream& stream, Workspace& workspace,
            int64_t most_few);
/// All heads share the threads.
void head_linear(const HeadLinearArgs& args, const device::Stream& stream, Workspace& workspace,
                 int64_t most_few);
/// Computes `linear` for weights of bf16, int8 or int4. x may be bf16, too. Many rows are multiplied
/// by the kernel. Weights of bf16 are read from `weights` where they are there. Otherwise they are
/// read in place for up to `most_few` rows, and packed for more. Rows become `rows` where the kernel
/// gains by that. Requires has_native_bf16().
void linear_bf16(const Bf16Kernel& kernel, const LinearArgs& args, const WeightPanels& weights,
                 PackedRows& rows, const device::Stream& stream, Workspace& workspace,
                 std::optional<int64_t> most_few);
void quantize_rows(const QuantizeRowsArgs& args, const device::Stream& stream,
                   Workspace& workspace);
void add(const AddArgs& args, const device::Stream& stream);
void mask_tokens(const MaskTokensArgs& args, const device::Stream& stream);
void cast(const CastArgs& args, const device::Stream& stream);
void square_sums(const SquareSumsArgs& args, const device::Stream& stream);
void sum_rows(const SumRowsArgs& args, const device::Stream& stream);
void rms_norm(const RmsNormArgs& args, const device::Stream& stream);
void rope(const RopeArgs& args, const device::Stream& stream);
void rope_tables(const RopeTablesArgs& args, const device::Stream& stream);
void kv_store(const KvStoreArgs& args, const device::Stream& stream);
void attention(const AttentionArgs& args, const device::Stream& stream, Workspace& workspace,
               AttentionPlan& plan);
/// Computes `attention` for keys of bf16 or fp8 with products of bf16: few rows by RowAttention, others
/// by StripAttention and the kernel's strips. Requires has_native_bf16().
void attention_bf16(const Bf16Kernel& kernel, const AttentionArgs& args,
                    const device::Stream& stream, Workspace& workspace, AttentionPlan& plan);
void column_sums(const ColumnSumsArgs& args, const device::Stream& stream, Workspace& workspace);
void merge(const MergeArgs& args, const device::Stream& stream);
void merge_picked(const MergePickedArgs& args, const device::Stream& stream);
void kept_order(const KeptOrderArgs& args, const device::Stream& stream);
void pick_rows(const PickRowsArgs& args, const device::Stream& stream);
void row_need(const RowNeedArgs& args, const device::Stream& stream);
void gated_activation(const GatedActivationArgs& args, const device::Stream& stream);
/// Of rows [begin, end), in this thread.
void gated_activation_of_rows(const GatedActivationArgs& args, int64_t begin, int64_t end);
void xielu(const XieluArgs& args, const device::Stream& stream);
void soft_cap(const SoftCapArgs& args, const device::Stream& stream);
void causal_conv(const CausalConvArgs& args, const device::Stream& stream);
void recurrence_gates(const RecurrenceGatesArgs& args, const device::Stream& stream);
void recurrence(const RecurrenceArgs& args, const device::Stream& stream, Workspace& workspace);
RecurrencePace recurrence_pace(int64_t key_dim, int64_t value_dim, int num_threads);
void route(const RouteArgs& args, const device::Stream& stream);
void sample(const SamplingArgs& args, const device::Stream& stream, Workspace& workspace);
void log_probs(const LogProbsArgs& args, const device::Stream& stream, Workspace& workspace);
void shortlist(const ShortlistArgs& args, const device::Stream& stream, Workspace& workspace);

}  // namespace pecia::kernels::cpu
