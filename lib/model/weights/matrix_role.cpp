// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/matrix_role.hpp"

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/expert_routes.hpp"
#include "lib/ranks/parallel/heads.hpp"

namespace pecia::model {

using parallel::RowRange;
using parallel::WeightCut;

namespace {

int64_t elements(const ModelConfig& config, CutUnit unit, int64_t layer) {
  return unit_part(config, unit, WeightCut{}, layer).size();
}

int64_t query_inputs(const ModelConfig& config) {
  return config.latent && config.latent->q_rank > 0 ? config.latent->q_rank : config.hidden;
}
int64_t nope_dim(const ModelConfig& config) {
  return config.latent.value().nope_dim;
}
int64_t kv_rank(const ModelConfig& config) {
  return config.latent.value().kv_rank;
}
int64_t expert_inputs(const ModelConfig& config) {
  return config.experts && config.experts->latent > 0 ? config.experts->latent : config.hidden;
}

}  // namespace

const MatrixRole& role_of(MatrixKind kind) {
  using Side = MatrixRole::Side;
  static constexpr std::array<MatrixRole, num_matrix_kinds> roles{{
      {"q", CutUnit::query_heads, Side::outputs, &ModelConfig::attention_bias, query_inputs},
      {"k", CutUnit::kv_heads, Side::outputs, &ModelConfig::attention_bias},
      {"v", CutUnit::kv_heads, Side::outputs, &ModelConfig::attention_bias},
      {"q_down", CutUnit::query_latents, Side::outputs, &ModelConfig::attention_bias},
      {"kv_down", CutUnit::key_latents, Side::outputs, &ModelConfig::attention_bias},
      {"key_up", CutUnit::latent_heads, Side::outputs, nullptr, nope_dim},
      {"value_up", CutUnit::output_heads, Side::outputs, nullptr, kv_rank},
      {"head_keys", CutUnit::nope_heads, Side::outputs, nullptr, kv_rank},
      {"attention gate", CutUnit::query_heads, Side::outputs, nullptr},
      {"o", CutUnit::output_heads, Side::inputs, &ModelConfig::attention_output_bias},
      {"recurrent q", CutUnit::recurrent_keys, Side::outputs, nullptr},
      {"recurrent k", CutUnit::recurrent_keys, Side::outputs, nullptr},
      {"recurrent v", CutUnit::recurrent_values, Side::outputs, nullptr},
      {"recurrent z", CutUnit::recurrent_values, Side::outputs, nullptr},
      {"recurrent a", CutUnit::recurrent_heads, Side::outputs, nullptr},
      {"recurrent b", CutUnit::recurrent_heads, Side::outputs, nullptr},
      {"recurrent o", CutUnit::recurrent_values, Side::inputs, nullptr},
      {"gate", CutUnit::ffn, Side::outputs, &ModelConfig::mlp_bias},
      {"up", CutUnit::ffn, Side::outputs, &ModelConfig::mlp_bias},
      {"down", CutUnit::ffn, Side::inputs, &ModelConfig::mlp_bias},
      {"router", CutUnit::experts, Side::outputs, &ModelConfig::expert_bias},
      {"to experts' latents", CutUnit::expert_latents, Side::outputs, nullptr},
      {"from experts' latents", CutUnit::expert_latents, Side::inputs, nullptr},
      {"expert gate", CutUnit::expert_ffn, Side::outputs, &ModelConfig::expert_bias, expert_inputs},
      {"expert up", CutUnit::expert_ffn, Side::outputs, &ModelConfig::expert_bias, expert_inputs},
      {"expert down", CutUnit::expert_ffn, Side::inputs, &ModelConfig::expert_bias, expert_inputs},
      {"shared gate", CutUnit::shared_ffn, Side::outputs, nullptr},
      {"shared up", CutUnit::shared_ffn, Side::outputs, nullptr},
      {"shared down", CutUnit::shared_ffn, Side::inputs, nullptr},
      {"shared expert's gate", CutUnit::one_row, Side::outputs, nullptr},
      {"second gate", CutUnit::second, Side::outputs, nullptr},
      {"second up", CutUnit::second, Side::inputs, nullptr},
      {"lm_head", CutUnit::vocab, Side::outputs, nullptr},
  }};
  return roles[static_cast<size_t>(kind)];
}

bool MatrixRole::has_bias(const ModelConfig& config) const {
  const bool of_latents = config.latent && unit == CutUnit::query_heads;
  return bias != nullptr && config.*bias && !of_latents;
}

int64_t num_matrices(const ModelConfig& config, MatrixKind kind, int64_t layer) {
  const bool has_experts = config.feed_forward(layer) == FeedForward::experts;
  const bool has_dense = config.has_dense_ffn(layer), has_gate = config.matrices_of_ffn() == 3;
  const bool attends = config.mixer(layer) == MixerKind::attention;
  const bool recurs = config.mixer(layer) == MixerKind::recurrence;
  switch (kind) {
    case MatrixKind::q:
    case MatrixKind::o:
      return attends ? 1 : 0;
    case MatrixKind::k:
      return !config.latent && config.has_keys(layer) ? 1 : 0;
    case MatrixKind::v:
      return !config.latent && config.has_values(layer) ? 1 : 0;
    case MatrixKind::q_down:
      return attends && config.latent && config.latent->q_rank > 0 ? 1 : 0;
    case MatrixKind::kv_down:
    case MatrixKind::key_up:
    case MatrixKind::value_up:
    case MatrixKind::head_keys:
      return attends && config.latent ? 1 : 0;
    case MatrixKind::attention_gate:
      return attends && config.attention_gate ? 1 : 0;
    case MatrixKind::recurrent_q:
    case MatrixKind::recurrent_k:
    case MatrixKind::recurrent_v:
    case MatrixKind::recurrent_z:
    case MatrixKind::recurrent_a:
    case MatrixKind::recurrent_o:
      return recurs ? 1 : 0;
    case MatrixKind::recurrent_b:
      return recurs && config.recurrent->corrects ? 1 : 0;
    case MatrixKind::gate:
      return has_dense && has_gate ? 1 : 0;
    case MatrixKind::up:
    case MatrixKind::down:
      return has_dense ? 1 : 0;
    case MatrixKind::router:
      return has_experts ? 1 : 0;
    case MatrixKind::to_latents:
    case MatrixKind::from_latents:
      return has_experts && config.experts->latent > 0 ? 1 : 0;
    case MatrixKind::expert_gate:
      return has_experts && has_gate ? config.experts->count : 0;
    case MatrixKind::expert_up:
    case MatrixKind::expert_down:
      return has_experts ? config.experts->count : 0;
    case MatrixKind::shared_gate:
      return has_experts && has_gate && config.experts->shared_ffn > 0 ? 1 : 0;
    case MatrixKind::shared_up:
    case MatrixKind::shared_down:
      return has_experts && config.experts->shared_ffn > 0 ? 1 : 0;
    case MatrixKind::shared_row_gate:
      return has_experts && config.experts->shared_gate ? 1 : 0;
    case MatrixKind::second_gate:
    case MatrixKind::second_up:
      return config.second.width > 0 ? 1 : 0;
    case MatrixKind::head:
      return 0;
  }
  fail<InvalidArgument>("a matrix of kind {}", static_cast<int>(kind));
}

int64_t num_matrices(const ModelConfig& config, MatrixKind kind) {
  if (kind == MatrixKind::head) return 1;
  int64_t count = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    count += num_matrices(config, kind, layer);
  return count;
}

int64_t MatrixRole::out(const ModelConfig& config, int64_t layer) const {
  return side == Side::outputs ? elements(config, unit, layer) : width(config);
}

int64_t MatrixRole::in(const ModelConfig& config, int64_t layer) const {
  return side == Side::inputs ? elements(config, unit, layer) : width(config);
}

RowRange unit_part(const ModelConfig& config, CutUnit unit, WeightCut cut, int64_t layer) {
  const auto of_heads = [&](parallel::HeadRange heads, int64_t width) {
    return RowRange{heads.begin * width, heads.end * width};
  };
  const auto shard = [&] {
    return parallel::head_shard(config.num_heads, config.heads(layer).count, cut.count, cut.index);
  };
  const auto recurrence = [&] {
    PECIA_CHECK(config.recurrent, "a model without recurrent layers");
    return *config.recurrent;
  };
  const auto recurrent_shard = [&] {
    return parallel::head_shard(recurrence().heads, recurrence().key_heads, cut.count, cut.index);
  };
  const auto experts = [&] {
    PECIA_CHECK(config.experts, "a model without experts");
    return *config.experts;
  };
  switch (unit) {
    case CutUnit::query_heads:
      return of_heads(shard().q, config.query_dim(layer));
    case CutUnit::latent_heads:
      return of_heads(shard().q, config.value_dim(layer));
    case CutUnit::nope_heads:
      return of_heads(shard().q, nope_dim(config));
    case CutUnit::output_heads:
      return of_heads(shard().q, config.output_dim(layer));
    case CutUnit::kv_heads:
      return of_heads(shard().kv, config.heads(layer).dim);
    case CutUnit::recurrent_keys:
      return of_heads(recurrent_shard().kv, recurrence().key_dim);
    case CutUnit::recurrent_values:
      return of_heads(recurrent_shard().q, recurrence().value_dim);
    case CutUnit::recurrent_heads:
      return of_heads(recurrent_shard().q, 1);
    case CutUnit::query_latents:
      return {0, config.latent.value().q_rank};
    case CutUnit::key_latents:
      return {0, config.latent.value().key_dim()};
    case CutUnit::ffn:
      return parallel::row_part({0, config.ffn_of(layer)}, cut.count, cut.index);
    case CutUnit::expert_ffn:
      if (cut.deals_experts()) return {0, experts().ffn};
      return parallel::row_part({0, experts().ffn}, cut.count, cut.index);
    case CutUnit::shared_ffn:
      return parallel::row_part({0, experts().shared_ffn}, cut.count, cut.index);
    case CutUnit::experts:
      return {0, experts().count};
    case CutUnit::one_row:
      return {0, 1};
    case CutUnit::expert_latents:
      return {0, experts().latent};
    case CutUnit::second:
      return {0, config.second.width};
    case CutUnit::vocab:
      return parallel::row_part({0, config.vocab}, cut.count, cut.index);
  }
  fail<InvalidArgument>("a unit of number {}", static_cast<int>(unit));
}

bool has_added_bias(CutUnit unit, WeightCut cut) {
  return cut.index == 0 || (unit == CutUnit::expert_ffn && cut.deals_experts());
}

RowRange experts_of(const ModelConfig& config, WeightCut cut) {
  return parallel::held_experts(config.experts.value().count, cut);
}

LinearWeight cut_matrix(const LinearWeight& matrix, MatrixKind kind, const ModelConfig& config,
                        int64_t layer, WeightCut held, WeightCut cut) {
  const MatrixRole& role = role_of(kind);
  const RowRange outer = unit_part(config, role.unit, held, layer);
  const RowRange inner = unit_part(config, role.unit, cut, layer);
  const int64_t begin = inner.begin - outer.begin;
  if (role.side == MatrixRole::Side::outputs) return slice_rows(matrix, begin, inner.size());
  LinearWeight part = slice_columns(matrix, begin, inner.size());
  if (has_added_bias(role.unit, cut))
    for (size_t i = 0; i < part.parts.size(); ++i) part.parts[i].bias = matrix.parts[i].bias;
  return part;
}

}  // namespace pecia::model
