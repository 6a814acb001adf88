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
  const auto attention = [&](AttentionWeights& own) {
    if (config.norms_without_weights(index))
      own.q_norm = own.k_norm = vector(config.head_dim, DType::fp32);
    if (config.qk_norm == QkNorm::each_head || config.qk_norm == QkNorm::all_heads) {
      const bool all = config.qk_norm == QkNorm::all_heads;
      const auto [kv_heads, dim] = config.heads(index);
      own.q_norm = norm((all ? config.num_heads : 1) * dim);
      if (config.has_keys(index)) own.k_norm = norm((all ? kv_heads : 1) * dim);
    }
    own.has_keys = config.has_keys(index), own.has_values = config.has_values(index);
    if (config.norms_values && own.has_keys)
      own.v_norm = vector(config.heads(index).dim, DType::fp32);
    if (config.attention_sinks) own.sinks = vector(config.num_heads, stored);
    if (config.attention_gate) own.gate.emplace();
    if (config.latent) {
      LatentWeights& latent = own.latent.emplace();
      if (config.latent->q_rank > 0) {
        own.q_norm = norm(config.latent->q_rank);
        latent.q_down.emplace();
      }
      own.k_norm = norm(config.latent->kv_rank);
    } else if (own.has_values) {
      projections({{MatrixKind::q, &own.q}, {MatrixKind::k, &own.k}, {MatrixKind::v, &own.v}});
    } else if (own.has_keys) {
      projections({{MatrixKind::q, &own.q}, {MatrixKind::k, &own.k}});
    }
  };
  const auto recurrence = [&](RecurrentWeights& own) {  // as Residence::recurrence makes it
    const RecurrentConfig& sizes = config.recurrent.value();
    const auto part_of = [&](CutUnit unit) { return unit_part(config, unit, cut, index).size(); };
    const int64_t keys = part_of(CutUnit::recurrent_keys);
    const int64_t values = part_of(CutUnit::recurrent_values);
    const int64_t heads = part_of(CutUnit::recurrent_heads);
    own.corrects = sizes.corrects;
    own.q_conv = block(keys, sizes.conv_rows, DType::fp32);
    own.k_conv = block(keys, sizes.conv_rows, DType::fp32);
    own.v_conv = block(values, sizes.conv_rows, DType::fp32);
    if (sizes.conv_bias) {
      own.q_conv_bias = vector(keys, DType::fp32), own.k_conv_bias = vector(keys, DType::fp32);
      own.v_conv_bias = vector(values, DType::fp32);
    }
    own.rate = vector(heads, DType::fp32), own.step_bias = vector(heads, DType::fp32);
    if (!sizes.corrects) own.skip = vector(heads, DType::fp32);
    own.norm = vector(sizes.corrects ? sizes.value_dim : values, DType::fp32);
  };
  const bool has_gate = config.matrices_of_ffn() == 3;
  const auto mixture = [&](MixtureWeights& own) {
    own.router = matrix(MatrixKind::router);
    if (config.experts->latent > 0) own.to_latents.emplace(), own.from_latents.emplace();
    own.experts.resize(experts_of(config, cut).size());
    for (GatedFfnWeights& expert : own.experts) expert.has_gate = has_gate;
    if (config.experts->choice_bias) own.choice_bias = vector(config.experts->count, DType::fp32);
    if (config.dense_beside_experts) {
      own.expert_scales = vector(config.experts->count, DType::fp32);
      own.router_norm = vector(config.hidden, DType::fp32);
      for (TensorView* of : {&own.before, &own.after_dense, &own.after}) *of = norm(config.hidden);
    }
    if (config.experts->shared_ffn == 0) return;
    GatedFfnWeights& shared = own.shared.emplace();
    shared.has_gate = has_gate;
    if (has_gate)
      projections({{MatrixKind::shared_gate, &shared.gate}, {MatrixKind::shared_up, &shared.up}});
    if (config.experts->shared_gate) shared.row_gate.emplace();
  };
  const int64_t vocab = unit_part(config, CutUnit::vocab, cut).size();
  if (config.stage.embeds()) embedding = block(vocab, config.hidden, stored);
  for (; index < config.layers; ++index) {
    LayerWeights& layer = layers.emplace_back();
    const MixerKind mixer = config.mixer(index);
    const FeedForward feed_forward = config.feed_forward(index);
    const bool mixes = mixer != MixerKind::none, feeds = feed_forward != FeedForward::none;
    if (config.norm_before && mixes) layer.attention_norm = norm(config.hidden);
    if (config.norm_before && feeds) layer.ffn_norm = norm(config.hidden);
    if (config.norm_after && mixes) layer.post_attention_norm = norm(config.hidden);
    if (config.norm_after && feeds) layer.post_ffn_norm = norm(config.hidden);
    layer.has_attention = mixer == MixerKind::attention;
    layer.has_ffn = config.has_dense_ffn(index);
    if (layer.has_attention) attention(layer.attention);
    if (mixer == MixerKind::recurrence) recurrence(layer.recurrent.emplace());
    if (config.second.width > 0) layer.second.emplace().norm = norm(config.hidden);
    if (feed_forward == FeedForward::experts) mixture(layer.mixture);
    layer.ffn.has_gate = has_gate;
    if (config.xielu) layer.ffn.xielu.emplace();
    if (layer.has_ffn && has_gate)
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
  if (!config.stage.ends()) return;
  final_norm =
      config.logits_divisor == 1 ? norm(config.hidden) : vector(config.hidden, DType::fp32);
  if (config.tied_embeddings && !type_of_matrix(quantize, MatrixKind::head) && embedding)
    head.parts.push_back({embedding, TensorView()});
  else
    head = matrix(MatrixKind::head);
}

}  // namespace pecia::model
