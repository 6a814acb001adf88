// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops on a GPU, one file each. Arguments must be valid, and tensors must be device memory.
/// Work is enqueued on the stream.
///
/// Besides its kernels, a call takes one copy of its host arrays to the device (Staging). `linear`
/// also rounds x to the weight's type. Attention by a library also rounds q and folds the library's
/// results into out. sample, log_probs and shortlist wait for their answers, which are on the host.

#include "kernels/api/backend.hpp"
#include "kernels/cuda/attention/attention_calls.hpp"
#include "kernels/cuda/attention/attention_wgmma.hpp"
#include "kernels/cuda/attention/sdpa.hpp"
#include "kernels/cuda/experts/grouped_matmul.hpp"
#include "kernels/cuda/linear/matmul.hpp"
#include "kernels/cuda/sampling/row_sort.hpp"
#include "kernels/cuda/shared/kept_arrays.hpp"
#include "kernels/cuda/shared/staging.hpp"

namespace pecia::kernels::cuda {

/// The libraries that do some of the ops' work.
struct Libraries {
  std::unique_ptr<Matmul> matmul;
  std::unique_ptr<RowSort> row_sort;
  FoundSdpa sdpa;
  FoundGroupedMatmul grouped_matmul = {};
  int64_t widened_expert_bytes = gpu_widened_expert_bytes;  ///< a test takes less
  FoundWgmmaAttention wgmma = {};
};

/// What the ops share. Scratch memory is used by one op at a time, in the order of the stream.
struct Context {
  Context(device::Device& on, Libraries libraries)
      : device(on),
        staging(on),
        kept_arrays(on),
        matmul(std::move(libraries.matmul)),
        row_sort(std::move(libraries.row_sort)),
        sdpa(std::move(libraries.sdpa.sdpa)),
        why_no_sdpa(std::move(libraries.sdpa.why_not)),
        grouped_matmul(std::move(libraries.grouped_matmul.matmul)),
        why_no_grouped_matmul(std::move(libraries.grouped_matmul.why_not)),
        why_no_grouped_fp8(std::move(libraries.grouped_matmul.why_no_fp8)),
        widened_expert_bytes(libraries.widened_expert_bytes),
        wgmma(std::move(libraries.wgmma)) {}

  device::Device& device;
  Staging staging;
  KeptArrays kept_arrays;
  AttentionCalls attention_calls{staging};
  std::unique_ptr<Matmul> matmul;
  std::unique_ptr<RowSort> row_sort;
  std::unique_ptr<Sdpa> sdpa;  ///< may be null: then our own kernels do all attention
  std::string why_no_sdpa;
  std::unique_ptr<GroupedMatmul> grouped_matmul;  ///< may be null: then our own kernels do it
  std::string why_no_grouped_matmul;
  std::string why_no_grouped_fp8;  ///< empty: it multiplies fp8 by fp8, if there is one
  int64_t widened_expert_bytes;
  FoundWgmmaAttention wgmma;
  device::Buffer operand{device, device::Memory::device};      ///< x of a product, in its type
  device::Buffer codes{device, device::Memory::device};        ///< x of a product, in fp8
  device::Buffer code_scales{device, device::Memory::device};  ///< scales of its rows
  TensorView rounded_x;  ///< whose codes they are; empty: of no x that is still the same
  device::Buffer products{device,
                          device::Memory::device};  ///< fp8 products; sums of splits; of experts
  device::Buffer wide_products{device, device::Memory::device};  ///< fp32, to be rounded into y
  device::Buffer widened{device, device::Memory::device};        ///< rows of codes as bf16
  device::Buffer expert_pairs{device, device::Memory::device};   ///< pairs of rows and experts
  device::Buffer activated{device, device::Memory::device};      ///< activations of experts in bf16
  device::Buffer activated_codes{device, device::Memory::device};  ///< the same in fp8
  device::Buffer pair_scales{device, device::Memory::device};   ///< scales of rows of pairs in fp8
  device::Buffer group_arrays{device, device::Memory::device};  ///< GroupArrays
  device::Buffer bias{device, device::Memory::device};          ///< bias of a product, in fp32
  device::Buffer partials{device, device::Memory::device};      ///< partials of attention
  device::Buffer arrivals{device, device::Memory::device};      ///< counters of attention's blocks
  int64_t zeroed_arrivals = 0;                                  ///< bytes of them that are counters
  device::Buffer rounded_q{device, device::Memory::device};  ///< for the library, like the next two
  device::Buffer part_out{device, device::Memory::device};
  device::Buffer part_lse{device, device::Memory::device};
  device::Buffer chunk_parts{device, device::Memory::device};  ///< ChunkParts of a recurrence
  device::Buffer statistics{device, device::Memory::device};   ///< statistics of the logits' rows
  device::Buffer scores{device, device::Memory::device};       ///< for sampling, like the next ones
  device::Buffer ranked{device, device::Memory::device};
  device::Buffer counts{device, device::Memory::device};
  device::Buffer answers{device, device::Memory::device};
  device::Buffer host_answers{device, device::Memory::pinned};
};

void add(const AddArgs& args, Context& context, device::Stream& stream);
void mask_tokens(const MaskTokensArgs& args, Context& context, device::Stream& stream);
void embedding(const EmbeddingArgs& args, Context& context, device::Stream& stream);
void linear(const LinearArgs& args, Context& context, device::Stream& stream);
void head_linear(const HeadLinearArgs& args, Context& context, device::Stream& stream);
void quantize_rows(const QuantizeRowsArgs& args, Context& context, device::Stream& stream);
void cast(const CastArgs& args, Context& context, device::Stream& stream);
void square_sums(const SquareSumsArgs& args, Context& context, device::Stream& stream);
void sum_rows(const SumRowsArgs& args, Context& context, device::Stream& stream);
void rms_norm(const RmsNormArgs& args, Context& context, device::Stream& stream);
void rope(const RopeArgs& args, Context& context, device::Stream& stream);
void rope_tables(const RopeTablesArgs& args, Context& context, device::Stream& stream);
void kv_store(const KvStoreArgs& args, Context& context, device::Stream& stream);
void rotate_and_store(const RotateAndStoreArgs& args, Context& context, device::Stream& stream);
void attention(const AttentionArgs& args, Context& context, device::Stream& stream);
void column_sums(const ColumnSumsArgs& args, Context& context, device::Stream& stream);
void merge(const MergeArgs& args, Context& context, device::Stream& stream);
void merge_picked(const MergePickedArgs& args, Context& context, device::Stream& stream);
void kept_order(const KeptOrderArgs& args, Context& context, device::Stream& stream);
void pick_rows(const PickRowsArgs& args, Context& context, device::Stream& stream);
void row_need(const RowNeedArgs& args, Context& context, device::Stream& stream);
void route(const RouteArgs& args, Context& context, device::Stream& stream);
void experts(const ExpertsArgs& args, Context& context, device::Stream& stream);
void gated_activation(const GatedActivationArgs& args, Context& context, device::Stream& stream);
void xielu(const XieluArgs& args, Context& context, device::Stream& stream);
void soft_cap(const SoftCapArgs& args, Context& context, device::Stream& stream);
void causal_conv(const CausalConvArgs& args, Context& context, device::Stream& stream);
void recurrence_gates(const RecurrenceGatesArgs& args, Context& context, device::Stream& stream);
void recurrence(const RecurrenceArgs& args, Context& context, device::Stream& stream);
bool takes_gated_linear(const GatedLinearArgs& args);
void gated_linear(const GatedLinearArgs& args, Context& context, device::Stream& stream);
void sample(const SamplingArgs& args, Context& context, device::Stream& stream);
void log_probs(const LogProbsArgs& args, Context& context, device::Stream& stream);
void shortlist(const ShortlistArgs& args, Context& context, device::Stream& stream);

/// Makes the backend over its libraries. A test gives its own libraries.
std::unique_ptr<Backend> make_backend(device::Device& device, Libraries libraries);

}  // namespace pecia::kernels::cuda
