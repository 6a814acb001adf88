// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Each op as its header's formula, in plain loops with double accumulators. Arguments are valid.

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/api/backend.hpp"

namespace pecia::kernels::reference {

void embedding(const EmbeddingArgs& args);
void linear(const LinearArgs& args);
void quantize_rows(const QuantizeRowsArgs& args);
void add(const AddArgs& args);
void mask_tokens(const MaskTokensArgs& args);
void cast(const CastArgs& args);
void square_sums(const SquareSumsArgs& args);
void sum_rows(const SumRowsArgs& args);
void rms_norm(const RmsNormArgs& args);
void rope(const RopeArgs& args);
void rope_tables(const RopeTablesArgs& args);
void kv_store(const KvStoreArgs& args);
void attention(const AttentionArgs& args);
void column_sums(const ColumnSumsArgs& args);
void merge(const MergeArgs& args);
void merge_picked(const MergePickedArgs& args);
void kept_order(const KeptOrderArgs& args);
void pick_rows(const PickRowsArgs& args);
void row_need(const RowNeedArgs& args);
void gated_activation(const GatedActivationArgs& args);
void xielu(const XieluArgs& args);
void causal_conv(const CausalConvArgs& args);
void recurrence_gates(const RecurrenceGatesArgs& args);
void recurrence(const RecurrenceArgs& args);
void soft_cap(const SoftCapArgs& args);
void route(const RouteArgs& args);
void experts(const ExpertsArgs& args);
void sample(const SamplingArgs& args);
void log_probs(const LogProbsArgs& args);
void shortlist(const ShortlistArgs& args);

/// A row replaced by its codes as numbers, by QuantizeRowsArgs; its scale.
float round_to_codes(std::span<float> row);

/// A score after biases and penalties, kept within ± largest_score; −infinity stays.
inline double bounded(double score) {
  return std::isinf(score) && score < 0 ? score : std::clamp(score, -largest_score, largest_score);
}

/// Row `row` of an fp32 view.
inline float* row_of(const TensorView& view, int64_t row) {
  return static_cast<float*>(view.row(row));
}

}  // namespace pecia::kernels::reference
