// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A backend whose ops do nothing, for those that need to see some of them alone.

#include "kernels/api/backend.hpp"

namespace pecia::kernels {

class IdleBackend : public Backend {
 public:
  std::string_view name() const override { return "idle"; }

  void embedding(const EmbeddingArgs&, device::Stream&) override {}
  void linear(const LinearArgs&, device::Stream&) override {}
  void quantize_rows(const QuantizeRowsArgs&, device::Stream&) override {}
  void add(const AddArgs&, device::Stream&) override {}
  void mask_tokens(const MaskTokensArgs&, device::Stream&) override {}
  void cast(const CastArgs&, device::Stream&) override {}
  void square_sums(const SquareSumsArgs&, device::Stream&) override {}
  void sum_rows(const SumRowsArgs&, device::Stream&) override {}
  void rms_norm(const RmsNormArgs&, device::Stream&) override {}
  void rope(const RopeArgs&, device::Stream&) override {}
  void rope_tables(const RopeTablesArgs&, device::Stream&) override {}
  void kv_store(const KvStoreArgs&, device::Stream&) override {}
  void attention(const AttentionArgs&, device::Stream&) override {}
  void column_sums(const ColumnSumsArgs&, device::Stream&) override {}
  void merge(const MergeArgs&, device::Stream&) override {}
  void merge_picked(const MergePickedArgs&, device::Stream&) override {}
  void kept_order(const KeptOrderArgs&, device::Stream&) override {}
  void pick_rows(const PickRowsArgs&, device::Stream&) override {}
  void row_need(const RowNeedArgs&, device::Stream&) override {}
  void gated_activation(const GatedActivationArgs&, device::Stream&) override {}
  void xielu(const XieluArgs&, device::Stream&) override {}
  void causal_conv(const CausalConvArgs&, device::Stream&) override {}
  void recurrence_gates(const RecurrenceGatesArgs&, device::Stream&) override {}
  void recurrence(const RecurrenceArgs&, device::Stream&) override {}
  void route(const RouteArgs&, device::Stream&) override {}
  void experts(const ExpertsArgs&, device::Stream&) override {}
  void sample(const SamplingArgs&, device::Stream&) override {}
  void log_probs(const LogProbsArgs&, device::Stream&) override {}
  void shortlist(const ShortlistArgs&, device::Stream&) override {}
};

}  // namespace pecia::kernels
