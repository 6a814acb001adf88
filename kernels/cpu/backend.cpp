// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"

#include "kernels/api/validate.hpp"
#include "kernels/cpu/architecture.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/experts.hpp"
#include "kernels/cpu/linear/linear_packed.hpp"
#include "kernels/cpu/products/amx_kernel.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels {
namespace {

/// One op at a time: the scratch memory is shared by all of them.
class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const cpu::KernelsByRows& kernels) : kernels_(kernels) {}

  std::string_view name() const override { return "cpu"; }
  bool merges_attention() const override { return true; }
  bool continues_attention() const override { return true; }
  DType operand_type(DType weight) const override {
    const bool always = kernels_.few != nullptr && kernels_.many != nullptr;
    return always && of_bf16(weight) ? DType::bf16 : DType::fp32;
  }
  DType query_type(DType keys, int64_t) const override { return operand_type(keys); }

  void embedding(const EmbeddingArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::embedding(args, stream);
  }
  void linear(const LinearArgs& args, device::Stream& stream) override {
    validate(args);
    refuse_rounded_products(args.y, name());
    multiply(args, stream);
  }
  /// By products of bf16 head by head, whose panels are found by their matrix.
  void head_linear(const HeadLinearArgs& args, device::Stream& stream) override {
    validate(args);
    if (by_bf16(linear_of_head(args, 0)) != nullptr) return Backend::head_linear(args, stream);
    refuse_rounded_products(args.y, name());
    packed_rows_.forget();
    cpu::head_linear(args, stream, workspace_, most_few_of_fp32());
  }
  /// Many rows and two matrices with panels, where the kernel packs rows.
  bool takes_gated_linear(const GatedLinearArgs& args) const override {
    return gated_kernel(args) != nullptr;
  }
  void gated_linear(const GatedLinearArgs& args, device::Stream& stream) override {
    validate(args);
    const cpu::Bf16Kernel* const kernel = gated_kernel(args);
    if (kernel == nullptr) return Backend::gated_linear(args, stream);
    cpu::gated_linear_packed(*kernel, args, gated_panels(*kernel, args), packed_rows_, stream,
                             workspace_);
  }
  int64_t panel_bytes(const TensorView& matrix) const override {
    const bool by_bf16 = kernels_.few != nullptr || kernels_.many != nullptr;
    return by_bf16 && matrix.dtype() == DType::bf16 ? cpu::WeightPanels::bytes_of(matrix) : 0;
  }
  void make_panels(const PanelsArgs& args, device::Stream& stream) override {
    if (panel_bytes(args.matrix) == 0) return Backend::make_panels(args, stream);
    validate(args);
    cpu::WeightPanels::make(args, stream);
  }
  void use_panels(const TensorView& matrix, const void* panels) override {
    if (panel_bytes(matrix) == 0) return Backend::use_panels(matrix, panels);
    panels_.set(matrix, panels);
  }
  void quantize_rows(const QuantizeRowsArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::quantize_rows(args, stream, workspace_);
  }
  void add(const AddArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::add(args, stream);
  }
  void mask_tokens(const MaskTokensArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::mask_tokens(args, stream);
  }
  void cast(const CastArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::cast(args, stream);
  }
  void square_sums(const SquareSumsArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::square_sums(args, stream);
  }
  void sum_rows(const SumRowsArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::sum_rows(args, stream);
  }
  void rms_norm(const RmsNormArgs& args, device::Stream& stream) override {
    validate(args);
    takes(args.out);
    cpu::rms_norm(args, stream);
  }
  void rope(const RopeArgs& args, device::Stream& stream) override {
    validate(args);
    takes(args.out);
    cpu::rope(args, stream);
  }
  void rope_tables(const RopeTablesArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::rope_tables(args, stream);
  }
  void kv_store(const KvStoreArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::kv_store(args, stream);
  }
  void attention(const AttentionArgs& args, device::Stream& stream) override {
    validate(args);
    refuse_rounded(args, name());
    refuse_other_queries(args, query_type(args.kv_dtype, args.q.size(2)), name());
    const cpu::Bf16Kernel* const kernel = kernel_for(args.q.rows(), args.row_invariant);
    if (kernel != nullptr && (args.kv_dtype == DType::bf16 || args.kv_dtype == DType::fp8))
      cpu::attention_bf16(*kernel, args, stream, workspace_, plan_);
    else
      cpu::attention(args, stream, workspace_, plan_);
  }
  void column_sums(const ColumnSumsArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::column_sums(args, stream, workspace_);
  }
  void merge(const MergeArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::merge(args, stream);
  }
  void merge_picked(const MergePickedArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::merge_picked(args, stream);
  }
  void kept_order(const KeptOrderArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::kept_order(args, stream);
  }
  void pick_rows(const PickRowsArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::pick_rows(args, stream);
  }
  void row_need(const RowNeedArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::row_need(args, stream);
  }
  void gated_activation(const GatedActivationArgs& args, device::Stream& stream) override {
    validate(args);
    takes(args.out);
    refuse_rounded_products(args.gate, name());
    cpu::gated_activation(args, stream);
  }
  void soft_cap(const SoftCapArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::soft_cap(args, stream);
  }
  void xielu(const XieluArgs& args, device::Stream& stream) override {
    validate(args);
    takes(args.out);
    cpu::xielu(args, stream);
  }
  void causal_conv(const CausalConvArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::causal_conv(args, stream);
  }
  void recurrence_gates(const RecurrenceGatesArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::recurrence_gates(args, stream);
  }
  RecurrencePace recurrence_pace(int64_t key_dim, int64_t value_dim,
                                 const device::Stream& stream) const override {
    return cpu::recurrence_pace(key_dim, value_dim, stream.num_threads());
  }
  void recurrence(const RecurrenceArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::recurrence(args, stream, workspace_);
  }
  void route(const RouteArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::route(args, stream);
  }
  void experts(const ExpertsArgs& args, device::Stream& stream) override {
    validate(args);
    const bool invariant = args.row_invariant == RowInvariant::yes;
    experts_.run(
        args, stream, [&](const LinearArgs& product) { multiply(product, stream); },
        [&](DType weight) { return invariant ? DType::fp32 : operand_type(weight); });
  }
  void sample(const SamplingArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::sample(args, stream, workspace_);
  }
  void log_probs(const LogProbsArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::log_probs(args, stream, workspace_);
  }
  void shortlist(const ShortlistArgs& args, device::Stream& stream) override {
    validate(args);
    cpu::shortlist(args, stream, workspace_);
  }

 private:
  void multiply(const LinearArgs& args, device::Stream& stream) {
    if (const cpu::Bf16Kernel* const kernel = by_bf16(args))
      return cpu::linear_bf16(*kernel, args, panels_, packed_rows_, stream, workspace_,
                              kernels_.most_few);
    packed_rows_.forget();
    cpu::linear(args, stream, workspace_, most_few_of_fp32());
  }
  int64_t most_few_of_fp32() const {
    return kernels_.most_few.value_or(usual_most_few(MatmulKind::fp32));
  }
  /// Null: products of fp32.
  const cpu::Bf16Kernel* by_bf16(const LinearArgs& args) const {
    return of_bf16(args.weight.dtype()) ? kernel_for(args.x.rows(), args.row_invariant) : nullptr;
  }
  /// Null: products of fp32.
  const cpu::Bf16Kernel* kernel_for(int64_t rows, RowInvariant row_invariant) const {
    const int64_t most_few = kernels_.most_few.value_or(usual_most_few(MatmulKind::bf16));
    return row_invariant == RowInvariant::yes || rows > most_few ? kernels_.many : kernels_.few;
  }
  /// Null: gated_linear is not taken.
  const cpu::Bf16Kernel* gated_kernel(const GatedLinearArgs& args) const {
    if (args.x.rows() <= kernels_.most_few.value_or(usual_most_few(MatmulKind::bf16)) ||
        args.x.size(1) > cpu::most_packed_depth || args.out.dtype() != DType::bf16 ||
        operand_type(DType::bf16) != DType::bf16 || kernels_.many->multiply_square == nullptr)
      return nullptr;
    const auto [gate, up] = gated_panels(*kernels_.many, args);
    return gate && up ? kernels_.many : nullptr;
  }
  cpu::GatedPanels gated_panels(const cpu::Bf16Kernel& kernel, const GatedLinearArgs& args) const {
    const auto of = [&](const TensorView& weight) {
      return weight.dtype() == DType::bf16 ? panels_.of(weight, 1, kernel.depth_unit)
                                           : cpu::Panels{};
    };
    return {of(args.gate), of(args.up)};
  }
  /// Weights that can be multiplied as numbers of bf16.
  static bool of_bf16(DType weight) {
    return weight == DType::bf16 || weight == DType::int8 || weight == DType::int4 ||
           weight == DType::mxfp4 || weight == DType::nvfp4;
  }
  void takes(const TensorView& operand) const {
    PECIA_CHECK(operand.dtype() == DType::fp32 || operand.dtype() == operand_type(operand.dtype()),
                "an operand of {} for the CPU backend", name_of(operand.dtype()));
  }

  cpu::KernelsByRows kernels_;
  cpu::WeightPanels panels_;
  cpu::PackedRows packed_rows_;
  cpu::Workspace workspace_;
  cpu::AttentionPlan plan_;
  cpu::Experts experts_;
};

const cpu::Bf16Kernel* kernel_of(MatmulKind products) {
  switch (products) {
    case MatmulKind::fp32:
      return nullptr;
    case MatmulKind::bf16:
      return &cpu::bf16_vectors();
    case MatmulKind::amx:
      return &cpu::amx_kernel();
  }
  return nullptr;
}

}  // namespace

namespace cpu {

std::unique_ptr<Backend> make_backend(const KernelsByRows& kernels) {
  return std::make_unique<CpuBackend>(kernels);
}

}  // namespace cpu

std::string_view name_of(MatmulKind products) {
  switch (products) {
    case MatmulKind::fp32:
      return "fp32";
    case MatmulKind::bf16:
      return "bf16";
    case MatmulKind::amx:
      return "amx";
  }
  return "?";
}

std::string why_no_products(MatmulKind products) {
  switch (products) {
    case MatmulKind::fp32:
      return "";
    case MatmulKind::bf16:
      return cpu::has_native_bf16() ? ""
                                    : fmt::format("they need {}, and this process has {}",
                                                  cpu::needed_for_bf16(), name_of(isa()));
    case MatmulKind::amx:
      return cpu::why_no_amx_products();
  }
  return "?";
}

bool cpu_has_bf16_products() {
  return cpu::has_native_bf16();
}

std::unique_ptr<Backend> make_cpu_backend(const CpuProducts& products) {
  cpu::choose_vectors();
  for (const MatmulKind each : {products.few, products.many})
    if (const std::string why = why_no_products(each); !why.empty())
      fail<Unsupported>("this CPU has no products of {}: {}", name_of(each), why);
  return cpu::make_backend({kernel_of(products.few), kernel_of(products.many), products.most_few});
}

}  // namespace pecia::kernels
