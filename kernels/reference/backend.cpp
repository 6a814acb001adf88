// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"

#include "kernels/api/validate.hpp"
#include "kernels/reference/reference.hpp"

namespace pecia::kernels {
namespace {

/// Polls once per op: it is an oracle, not a thing to overlap transfers with.
class ReferenceBackend : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  bool rounds_products() const override { return true; }

  void embedding(const EmbeddingArgs& args, device::Stream& stream) override {
    run(reference::embedding, args, stream);
  }
  void linear(const LinearArgs& args, device::Stream& stream) override {
    run(reference::linear, args, stream);
  }
  void quantize_rows(const QuantizeRowsArgs& args, device::Stream& stream) override {
    run(reference::quantize_rows, args, stream);
  }
  void add(const AddArgs& args, device::Stream& stream) override {
    run(reference::add, args, stream);
  }
  void mask_tokens(const MaskTokensArgs& args, device::Stream& stream) override {
    run(reference::mask_tokens, args, stream);
  }
  void cast(const CastArgs& args, device::Stream& stream) override {
    run(reference::cast, args, stream);
  }
  void square_sums(const SquareSumsArgs& args, device::Stream& stream) override {
    run(reference::square_sums, args, stream);
  }
  void sum_rows(const SumRowsArgs& args, device::Stream& stream) override {
    run(reference::sum_rows, args, stream);
  }
  void rms_norm(const RmsNormArgs& args, device::Stream& stream) override {
    run(reference::rms_norm, args, stream);
  }
  void rope(const RopeArgs& args, device::Stream& stream) override {
    run(reference::rope, args, stream);
  }
  void rope_tables(const RopeTablesArgs& args, device::Stream& stream) override {
    run(reference::rope_tables, args, stream);
  }
  void kv_store(const KvStoreArgs& args, device::Stream& stream) override {
    run(reference::kv_store, args, stream);
  }
  void attention(const AttentionArgs& args, device::Stream& stream) override {
    refuse_merged(args, name());
    refuse_rounded(args, name());
    refuse_continued(args, name());
    refuse_other_queries(args, query_type(args.kv_dtype, args.q.size(2)), name());
    run(reference::attention, args, stream);
  }
  void column_sums(const ColumnSumsArgs& args, device::Stream& stream) override {
    run(reference::column_sums, args, stream);
  }
  void merge(const MergeArgs& args, device::Stream& stream) override {
    run(reference::merge, args, stream);
  }
  void merge_picked(const MergePickedArgs& args, device::Stream& stream) override {
    run(reference::merge_picked, args, stream);
  }
  void kept_order(const KeptOrderArgs& args, device::Stream& stream) override {
    run(reference::kept_order, args, stream);
  }
  void pick_rows(const PickRowsArgs& args, device::Stream& stream) override {
    run(reference::pick_rows, args, stream);
  }
  void row_need(const RowNeedArgs& args, device::Stream& stream) override {
    run(reference::row_need, args, stream);
  }
  void gated_activation(const GatedActivationArgs& args, device::Stream& stream) override {
    run(reference::gated_activation, args, stream);
  }
  void soft_cap(const SoftCapArgs& args, device::Stream& stream) override {
    run(reference::soft_cap, args, stream);
  }
  void xielu(const XieluArgs& args, device::Stream& stream) override {
    run(reference::xielu, args, stream);
  }
  void causal_conv(const CausalConvArgs& args, device::Stream& stream) override {
    run(reference::causal_conv, args, stream);
  }
  void recurrence_gates(const RecurrenceGatesArgs& args, device::Stream& stream) override {
    run(reference::recurrence_gates, args, stream);
  }
  void recurrence(const RecurrenceArgs& args, device::Stream& stream) override {
    run(reference::recurrence, args, stream);
  }
  void route(const RouteArgs& args, device::Stream& stream) override {
    run(reference::route, args, stream);
  }
  void experts(const ExpertsArgs& args, device::Stream& stream) override {
    run(reference::experts, args, stream);
  }
  void sample(const SamplingArgs& args, device::Stream& stream) override {
    run(reference::sample, args, stream);
  }
  void log_probs(const LogProbsArgs& args, device::Stream& stream) override {
    run(reference::log_probs, args, stream);
  }
  void shortlist(const ShortlistArgs& args, device::Stream& stream) override {
    run(reference::shortlist, args, stream);
  }

 private:
  template <typename Args>
  void run(void (*op)(const Args&), const Args& args, device::Stream& stream) {
    validate(args);
    op(args);
    stream.poll();
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace pecia::kernels
