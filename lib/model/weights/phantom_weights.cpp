// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/phantom_weights.hpp"

#include <algorithm>

#include "lib/base/core/codes.hpp"

namespace pecia::model {

PhantomWeights::PhantomWeights(const ModelConfig& config, DType stored, parallel::WeightCut cut,
                               device::PhantomDevice& device, Quantize quantize,
                               const CodeUse& codes, bool in_place) {
  part = cut;
  const auto vector = [&](int64_t size, DType type) {
    return memory_.emplace_back(device, device::Memory::device).tensor(type, {size});
  };
  const auto norm = [&](int64_t size) {  // as Residence::norm makes them
    return vector(size, config.norm_weight_offset == 0 ? stored : DType::fp32);
  };
  const auto block = [&](int64_t rows, int64_t columns, DType type) {
    return memory_.emplace_back(device, device::Memory::device).tensor(type, {rows, columns});
  };
  const auto shared_by = [&](DType type) {
    const bool stored_so = config.quantization && config.quantization->code() == type;
    return stored_so ? config.quantization->shared_by() : int4_group;
  };
  int64_t index = 0;  // the layer that is made
  const auto width_of = [&](MatrixKind kind) {
    return unit_part(config, role_of(kind).unit, cut, index).size();
  };
  const auto matrix_of_width = [&](MatrixKind kind, int64_t width) {
    const MatrixRole& role = role_of(kind);
    const bool outputs = role.side == MatrixRole::Side::outputs;
    const int64_t rows = outputs ? width : role.width(config);
    const int64_t columns = outputs ? role.width(config) : width;
    const DType type = resident_type(config, kind, stored, quantize, codes);
    LinearWeight::Part made;
    made.weight = block(rows, row_elements(type, columns), type);
    if (in_place && !outputs && is_float(type)) {
      const int64_t all_columns = unit_part(config, role.unit, {}, index).size();
      made.weight =
          TensorView(made.weight.data(), type, {rows, all_columns}).slice_columns(0, columns);
    }
    if (numbers_of(type) > 1)
      made.scales = block(rows, row_scales(type, columns, shared_by(type)), scale_type(type));
    else if (type == DType::fp8 && resident_code(config, kind, codes))
      made.scales = block(rows, stored_fp8_scales(*config.quantization, columns), scale_type(type));
    else if (is_code(type))
      made.scales = vector(rows, scale_type(type));
    if (role.has_bias(config) && (outputs || has_added_bias(role.unit, cut)))
      made.bias = vector(rows, stored);
    return LinearWeight{{made}};
  };
  const auto matrix = [&](MatrixKind kind) { return matrix_of_width(kind, width_of(kind)); };
  const auto projections = [&](std::initializer_list<std::pair<MatrixKind, LinearWeight*>> all) {
    const auto like = [&](const auto& one) {
      const MatrixKind kind = one.first, first = all.begin()->first;
      return resident_type(config, kind, stored, quantize, codes) ==
                 resident_type(config, first, stored, quantize, codes) &&
             role_of(kind).has_bias(config) == role_of(first).has_bias(config);
    };
    if (!std::ranges::all_of(all, like)) {
      for (const auto& [kind, made] : all) *made = matrix(kind);
      return;
    }
    int64_t rows = 0;
    for (const auto& [kind, made] : all) rows += width_of(kind);
    const LinearWeight together = matrix_of_width(all.begin()->first, rows);
    int64_t first_row = 0;
    for (const auto& [kind, made] : all) {
      *made = slice_rows(together, first_row, width_of(kind));
      first_row += width_of(kind);
    }
  };
  const int64_t vocab = unit_part(config, CutUnit::vocab, cut).size();
  embedding = block(vocab, config.hidden, stored);
  for (; index < config.layers; ++index) {
    LayerWeights& layer = layers.emplace_back();
    if (config.norm_before) layer.attention_norm = norm(config.hidden);
    if (config.norm_before) layer.ffn_norm = norm(config.hidden);
    if (config.norm_after) layer.post_attention_norm = norm(config.hidden);
    if (config.norm_after) layer.post_ffn_norm = norm(config.hidden);
    if (config.norms_without_weights(index))
      layer.attention.q_norm = layer.attention.k_norm = vector(config.head_dim, DType::fp32);
    if (config.qk_norm == QkNorm::each_head || config.qk_norm == QkNorm::all_heads) {
      const bool all = config.qk_norm == QkNorm::all_heads;
      const auto [kv_heads, dim] = config.heads(index);
      layer.attention.q_norm = norm((all ? config.num_heads : 1) * dim);
      if (config.has_keys(index)) layer.attention.k_norm = norm((all ? kv_heads : 1) * dim);
    }
    layer.attention.has_keys = config.has_keys(index);
    layer.attention.has_values = config.has_values(index);
    if (config.norms_values && config.has_keys(index))
      layer.attention.v_norm = vector(config.heads(index).dim, DType::fp32);
    if (config.second.width > 0) layer.second.emplace().norm = norm(config.hidden);
    if (config.attention_sinks) layer.attention.sinks = vector(config.num_heads, stored);
    if (config.feed_forward(index) == FeedForward::experts) {
      layer.mixture.router = matrix(MatrixKind::router);
      layer.mixture.experts.resize(experts_of(config, cut).size());
      if (config.experts->choice_bias)
        layer.mixture.choice_bias = vector(config.experts->count, DType::fp32);
      if (config.dense_beside_experts) {
        layer.mixture.expert_scales = vector(config.experts->count, DType::fp32);
        layer.mixture.router_norm = vector(config.hidden, DType::fp32);
        for (TensorView* of :
             {&layer.mixture.before, &layer.mixture.after_dense, &layer.mixture.after})
          *of = norm(config.hidden);
      }
      if (config.experts->shared_ffn > 0) {
        GatedFfnWeights& shared = layer.mixture.shared.emplace();
        projections({{MatrixKind::shared_gate, &shared.gate}, {MatrixKind::shared_up, &shared.up}});
        if (config.experts->shared_gate) shared.row_gate.emplace();
      }
    }
    if (config.attention_gate) layer.attention.gate.emplace();
    if (config.latent) {
      LatentWeights& latent = layer.attention.latent.emplace();
      if (config.latent->q_rank > 0) {
        layer.attention.q_norm = norm(config.latent->q_rank);
        latent.q_down.emplace();
      }
      layer.attention.k_norm = norm(config.latent->kv_rank);
    } else {
      AttentionWeights& own = layer.attention;
      if (own.has_values)
        projections({{MatrixKind::q, &own.q}, {MatrixKind::k, &own.k}, {MatrixKind::v, &own.v}});
      else if (own.has_keys)
        projections({{MatrixKind::q, &own.q}, {MatrixKind::k, &own.k}});
      else
        own.q = matrix(MatrixKind::q);
    }
    if (config.xielu)
      layer.ffn.xielu.emplace();
    else if (config.has_dense_ffn(index))
      projections({{MatrixKind::gate, &layer.ffn.gate}, {MatrixKind::up, &layer.ffn.up}});
    layer.for_each_matrix([&](MatrixKind kind, LinearWeight& of_layer) {
      if (kind != MatrixKind::router && of_layer.parts.empty()) of_layer = matrix(kind);
    });
  }
  if (config.second.width > 0) {
    const int64_t width = config.layers * config.second.width;
    second_embedding = block(vocab, width, stored);
    second_projection.parts.push_back({block(width, config.hidden, stored), TensorView()});
    second_norm = norm(config.second.width);
  }
  final_norm =
      config.logits_divisor == 1 ? norm(config.hidden) : vector(config.hidden, DType::fp32);
  if (config.tied_embeddings && !type_of_matrix(quantize, MatrixKind::head))
    head.parts.push_back({embedding, TensorView()});
  else
    head = matrix(MatrixKind::head);
}

}  // namespace pecia::model
