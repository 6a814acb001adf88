// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
/// The one place where an op's arguments are checked against its header. Every backend calls it
/// first, so that a contradiction throws InvalidArgument before anything is written. Checks that
/// would take a pass over the data (token ids, distinct slots) are left to the caller, except if an
/// index is written through.

#include "kernels/api/add.hpp"
#include "kernels/api/attention.hpp"
#include "kernels/api/cast.hpp"
#include "kernels/api/causal_conv.hpp"
#include "kernels/api/column_sums.hpp"
#include "kernels/api/embedding.hpp"
#include "kernels/api/experts.hpp"
#include "kernels/api/gated_activation.hpp"
#include "kernels/api/gated_linear.hpp"
#include "kernels/api/head_linear.hpp"
#include "kernels/api/kept_order.hpp"
#include "kernels/api/kv_store.hpp"
#include "kernels/api/linear.hpp"
#include "kernels/api/mask_tokens.hpp"
#include "kernels/api/merge.hpp"
#include "kernels/api/merge_picked.hpp"
#include "kernels/api/panels.hpp"
#include "kernels/api/pick_rows.hpp"
#include "kernels/api/quantize_rows.hpp"
#include "kernels/api/recurrence.hpp"
#include "kernels/api/recurrence_gates.hpp"
#include "kernels/api/rms_norm.hpp"
#include "kernels/api/rope.hpp"
#include "kernels/api/rope_tables.hpp"
#include "kernels/api/rotate_and_store.hpp"
#include "kernels/api/route.hpp"
#include "kernels/api/row_need.hpp"
#include "kernels/api/sampling.hpp"
#include "kernels/api/shortlist.hpp"
#include "kernels/api/soft_cap.hpp"
#include "kernels/api/square_sums.hpp"
#include "kernels/api/sum_rows.hpp"
#include "kernels/api/xielu.hpp"

namespace pecia::kernels {

void validate(const EmbeddingArgs& args);
void validate(const SumRowsArgs& args);
void validate(const LinearArgs& args);
void validate(const HeadLinearArgs& args);
void validate(const PanelsArgs& args);
void validate(const QuantizeRowsArgs& args);
void validate(const AddArgs& args);
void validate(const CastArgs& args);
void validate(const MaskTokensArgs& args);
void validate(const SquareSumsArgs& args);
void validate(const RmsNormArgs& args);
void validate(const RopeArgs& args);
void validate(const RopeTablesArgs& args);
void validate(const KvStoreArgs& args);
void validate(const AttentionArgs& args);
void validate(const RotateAndStoreArgs& args);
/// Throws Unsupported for results of a narrow type, on behalf of a backend that has none.
void refuse_rounded(const AttentionArgs& args, std::string_view backend);
/// Throws Unsupported for products of a narrow type, on behalf of a backend without
/// rounds_products().
void refuse_rounded_products(const TensorView& products, std::string_view backend);
/// Throws Unsupported for results that are continued, on behalf of a backend without
/// continues_attention().
void refuse_continued(const AttentionArgs& args, std::string_view backend);
/// Throws Unsupported for queries that are neither in fp32 nor in the backend's query_type.
void refuse_other_queries(const AttentionArgs& args, DType query_type, std::string_view backend);
/// Throws Unsupported for items that are merged, on behalf of a backend that does not merge.
void refuse_merged(const AttentionArgs& args, std::string_view backend);
void validate(const ColumnSumsArgs& args);
void validate(const MergeArgs& args);
void validate(const MergePickedArgs& args);
void validate(const KeptOrderArgs& args);
void validate(const PickRowsArgs& args);
void validate(const RowNeedArgs& args);
void validate(const GatedActivationArgs& args);
void validate(const XieluArgs& args);
void validate(const CausalConvArgs& args);
void validate(const RecurrenceGatesArgs& args);
void validate(const RecurrenceArgs& args);
void validate(const SoftCapArgs& args);
void validate(const GatedLinearArgs& args);
void validate(const RouteArgs& args);
void validate(const ExpertsArgs& args);
void validate(const SamplingArgs& args);
void validate(const LogProbsArgs& args);
void validate(const ShortlistArgs& args);

}  // namespace pecia::kernels
