// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops on the CPU, one file each. Arguments must be valid. The work is done when a call
/// returns.

#include "kernels/api/backend.hpp"
#include "kernels/cpu/attention/attention_plan.hpp"
#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/shared/workspace.hpp"

namespace pecia::kernels::cpu {

/// Makes the backend with products of bf16 by the kernel, or with products of fp32 if it is null.
/// The kernel outlives it.
std::unique_ptr<Backend> make_backend(const Bf16Kernel* kernel);

void embedding(const EmbeddingArgs& args, const device::Stream& stream);
void linear(const LinearArgs& args, const device::Stream& stream, Workspace& workspace);
/// Computes `linear` for weights of bf16, int8 or int4. x may be bf16, too. Many rows are multiplied by the kernel. Requires has_native_bf16().
void linear_bf16(const Bf16Kernel& kernel, const LinearArgs& args, const device::Stream& stream,
                 Workspace& workspace);
void quantize_rows(const QuantizeRowsArgs& args, const device::Stream& stream,
                   Workspace& workspace);
void add(const AddArgs& args, const device::Stream& stream);
void square_sums(const SquareSumsArgs& args, const device::Stream& stream);
void rms_norm(const RmsNormArgs& args, const device::Stream& stream);
void rope(const RopeArgs& args, const device::Stream& stream);
void kv_store(const KvStoreArgs& args, const device::Stream& stream);
void attention(const AttentionArgs& args, const device::Stream& stream, Workspace& workspace,
               AttentionPlan& plan);
/// Computes `attention` for bf16 keys (see Bf16Products). Many rows are
/// multiplied by the kernel. Requires has_native_bf16().
void attention_bf16(const Bf16Kernel& kernel, const AttentionArgs& args,
                    const device::Stream& stream, Workspace& workspace, AttentionPlan& plan);
void column_sums(const ColumnSumsArgs& args, const device::Stream& stream, Workspace& workspace);
void merge(const MergeArgs& args, const device::Stream& stream);
void gated_activation(const GatedActivationArgs& args, const device::Stream& stream);
void route(const RouteArgs& args, const device::Stream& stream);
void sample(const SamplingArgs& args, const device::Stream& stream, Workspace& workspace);
void log_probs(const LogProbsArgs& args, const device::Stream& stream, Workspace& workspace);
void shortlist(const ShortlistArgs& args, const device::Stream& stream, Workspace& workspace);

}  // namespace pecia::kernels::cpu
