// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"

#include "kernels/api/gpu_traits.hpp"
#include "kernels/api/validate.hpp"
#include "kernels/cuda/attention/attention_wgmma_check.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/experts/fp8_experts_check.hpp"

namespace pecia::kernels::cuda {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(device::Device& device, Libraries libraries, bool checks_fp8_experts)
      : context_(device, std::move(libraries)) {
    if (context_.wgmma.attend != nullptr && context_.wgmma.is_checked_at_start)
      check_wgmma_attention(context_);
    if (checks_fp8_experts) check_fp8_experts(context_);
  }

  std::string_view name() const override { return "cuda"; }
  DType operand_type(DType weight) const override { return gpu_operand_type(weight); }
  DType query_type(DType keys, int64_t head_dim) const override {
    return gpu_query_type(keys, head_dim);
  }
  std::string attention_library() const override {
    std::string name = context_.sdpa ? context_.sdpa->name() : "none: " + context_.why_no_sdpa;
    if (context_.wgmma.attend != nullptr) return name + "; our kernels by wgmma";
    if (!context_.wgmma.why_not.empty())
      name += "; our kernels without wgmma: " + context_.wgmma.why_not;
    return name;
  }

  std::string expert_library() const override {
    if (!context_.grouped_matmul) return "none: " + context_.why_no_grouped_matmul;
    const std::string& why_no_fp8 = context_.why_no_grouped_fp8;
    return context_.grouped_matmul->name() +
           (why_no_fp8.empty() ? "; fp8 by fp8" : "; fp8 widened: " + why_no_fp8);
  }

  bool rounds_products() const override { return true; }
  bool gains_by_fewer_ops() const override { return true; }

  void add(const AddArgs& args, device::Stream& stream) override { run(cuda::add, args, stream); }
  void mask_tokens(const MaskTokensArgs& args, device::Stream& stream) override {
    run(cuda::mask_tokens, args, stream);
  }
  void embedding(const EmbeddingArgs& args, device::Stream& stream) override {
    run(cuda::embedding, args, stream);
  }
  void linear(const LinearArgs& args, device::Stream& stream) override {
    run(cuda::linear, args, stream);
  }
  void head_linear(const HeadLinearArgs& args, device::Stream& stream) override {
    run(cuda::head_linear, args, stream);
  }
  void quantize_rows(const QuantizeRowsArgs& args, device::Stream& stream) override {
    run(cuda::quantize_rows, args, stream);
  }
  void cast(const CastArgs& args, device::Stream& stream) override {
    run(cuda::cast, args, stream);
  }
  void square_sums(const SquareSumsArgs& args, device::Stream& stream) override {
    run(cuda::square_sums, args, stream);
  }
  void sum_rows(const SumRowsArgs& args, device::Stream& stream) override {
    run(cuda::sum_rows, args, stream);
  }
  void rms_norm(const RmsNormArgs& args, device::Stream& stream) override {
    run(cuda::rms_norm, args, stream);
  }
  void rope(const RopeArgs& args, device::Stream& stream) override {
    run(cuda::rope, args, stream);
  }
  void rope_tables(const RopeTablesArgs& args, device::Stream& stream) override {
    run(cuda::rope_tables, args, stream);
  }
  void kv_store(const KvStoreArgs& args, device::Stream& stream) override {
    run(cuda::kv_store, args, stream);
  }
  void rotate_and_store(const RotateAndStoreArgs& args, device::Stream& stream) override {
    run(cuda::rotate_and_store, args, stream);
  }
  void attention(const AttentionArgs& args, device::Stream& stream) override {
    refuse_merged(args, name());
    refuse_continued(args, name());
    refuse_other_queries(args, query_type(args.kv_dtype, args.q.size(2)), name());
    run(cuda::attention, args, stream);
  }
  void column_sums(const ColumnSumsArgs& args, device::Stream& stream) override {
    run(cuda::column_sums, args, stream);
  }
  void merge(const MergeArgs& args, device::Stream& stream) override {
    run(cuda::merge, args, stream);
  }
  void merge_picked(const MergePickedArgs& args, device::Stream& stream) override {
    run(cuda::merge_picked, args, stream);
  }
  void kept_order(const KeptOrderArgs& args, device::Stream& stream) override {
    run(cuda::kept_order, args, stream);
  }
  void pick_rows(const PickRowsArgs& args, device::Stream& stream) override {
    run(cuda::pick_rows, args, stream);
  }
  void row_need(const RowNeedArgs& args, device::Stream& stream) override {
    run(cuda::row_need, args, stream);
  }
  void gated_activation(const GatedActivationArgs& args, device::Stream& stream) override {
    run(cuda::gated_activation, args, stream);
  }
  void xielu(const XieluArgs& args, device::Stream& stream) override {
    run(cuda::xielu, args, stream);
  }
  void soft_cap(const SoftCapArgs& args, device::Stream& stream) override {
    run(cuda::soft_cap, args, stream);
  }
  void causal_conv(const CausalConvArgs& args, device::Stream& stream) override {
    run(cuda::causal_conv, args, stream);
  }
  void recurrence_gates(const RecurrenceGatesArgs& args, device::Stream& stream) override {
    run(cuda::recurrence_gates, args, stream);
  }
  /// By the arithmetic of kernels/cuda.md for 9.0. Multiprocessors take heads in side by side.
  RecurrencePace recurrence_pace(int64_t /*key_dim*/, int64_t value_dim,
                                 const device::Stream& /*stream*/) const override {
    constexpr double row_s = 0.06e-6;
    constexpr int64_t columns_at_once = 32;  // on a multiprocessor
    const int64_t slices = (value_dim + columns_at_once - 1) / columns_at_once;
    return {row_s, static_cast<double>(context_.device.info().multiprocessors) /
                       static_cast<double>(slices)};
  }
  void recurrence(const RecurrenceArgs& args, device::Stream& stream) override {
    run(cuda::recurrence, args, stream);
  }
  bool takes_gated_linear(const GatedLinearArgs& args) const override {
    return cuda::takes_gated_linear(args);
  }
  void gated_linear(const GatedLinearArgs& args, device::Stream& stream) override {
    validate(args);
    if (!takes_gated_linear(args))
      fail<Unsupported>("{} rows of {} are gated by single ops", args.x.rows(),
                        name_of(args.gate.dtype()));
    cuda::gated_linear(args, context_, stream);
  }
  void route(const RouteArgs& args, device::Stream& stream) override {
    run(cuda::route, args, stream);
  }
  void experts(const ExpertsArgs& args, device::Stream& stream) override {
    run(cuda::experts, args, stream);
  }
  void sample(const SamplingArgs& args, device::Stream& stream) override {
    run(cuda::sample, args, stream);
  }
  void log_probs(const LogProbsArgs& args, device::Stream& stream) override {
    run(cuda::log_probs, args, stream);
  }
  void shortlist(const ShortlistArgs& args, device::Stream& stream) override {
    run(cuda::shortlist, args, stream);
  }

 private:
  void begin_step(device::Stream& stream) override {
    context_.attention_calls.begin_step();
    context_.staging.begin_step();
    stream.begin_step();
  }
  void end_step(device::Stream& stream) override {
    stream.end_step();
    context_.staging.end_step(stream);
  }
  void drop_step(device::Stream& stream) override {
    stream.drop_step();
    context_.staging.drop_step();
    context_.zeroed_arrivals = 0;  // that work may be dropped, too, and these copies
    context_.kept_arrays.forget();
  }

  template <typename Args>
  void run(void (*op)(const Args&, Context&, device::Stream&), const Args& args,
           device::Stream& stream) {
    validate(args);
    op(args, context_, stream);
  }

  Context context_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(device::Device& device, Libraries libraries) {
  const FoundGroupedMatmul& grouped = libraries.grouped_matmul;
  const bool checks_fp8_experts =
      grouped.matmul && grouped.why_no_fp8.empty() && grouped.is_checked_at_start;
  return std::make_unique<CudaBackend>(device, std::move(libraries), checks_fp8_experts);
}

}  // namespace pecia::kernels::cuda
