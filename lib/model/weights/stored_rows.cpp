// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/stored_rows.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/model/config/family.hpp"
#include "lib/model/weights/stored_codes.hpp"
#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {
namespace {

using parallel::RowRange;

/// The places of one layer's matrices, with module names in the layer.
class Places {
 public:
  Places(const ModelConfig& config, int64_t layer)
      : config_(config), traits_(traits_of(config.family)), layer_(layer) {}

  StoredRows of(MatrixKind kind) const {
    using enum MatrixKind;
    const WeightNames& names = traits_.names;
    switch (kind) {
      case q:
        if (traits_.gate_in_queries) return of_gated_queries(kind);
        if (config_.latent && config_.latent->q_rank > 0) return alone(names.q_up, kind);
        return names.qkv.empty() ? alone(names.q, kind) : of_qkv(kind);
      case k:
        return names.qkv.empty() ? alone(names.k, kind) : of_qkv(kind);
      case v:
        return names.qkv.empty() ? alone(names.v, kind) : of_qkv(kind);
      case q_down:
        return alone(names.q_down, kind);
      case kv_down:
        return alone(names.kv_down, kind);
      case attention_gate:
        return traits_.gate_in_queries ? of_gated_queries(kind) : alone(names.attention_gate, kind);
      case o:
        return alone(names.o, kind);
      case gate:
      case up:
        if (!names.gate_up.empty()) return among(names.gate_up, 1, {gate, up}, kind);
        return alone(kind == gate ? names.gate : names.up, kind);
      case down:
        return alone(names.down, kind);
      case router:
        return alone(names.router, kind);
      case to_latents:
        return alone(names.to_latents, kind);
      case from_latents:
        return alone(names.from_latents, kind);
      case expert_gate:
        return alone(names.expert_gate, kind);
      case expert_up:
        return alone(names.expert_up, kind);
      case expert_down:
        return alone(names.expert_down, kind);
      case shared_gate:
      case shared_up:
        if (!names.shared_gate_up.empty())
          return among(names.shared_gate_up, 1, {shared_gate, shared_up}, kind);
        return alone(kind == shared_gate ? names.shared_gate : names.shared_up, kind);
      case shared_down:
        return alone(names.shared_down, kind);
      case shared_row_gate:
        return alone(names.shared_row_gate, kind);
      case second_gate:
        return alone(names.second_gate, kind);
      case second_up:
        return alone(names.second_up, kind);
      case recurrent_q:
      case recurrent_k:
      case recurrent_v:
      case recurrent_z:
        return of_recurrence(kind);
      case recurrent_a:
      case recurrent_b:
        return of_decay(kind);
      case recurrent_o:
        return alone(names.recurrent.o, kind);
      case key_up:
      case value_up:
      case head_keys:
      case head:
        break;
    }
    fail<InvalidArgument>("stored rows of {}", role_of(kind).name);
  }

 private:
  int64_t rows_of(MatrixKind kind) const { return role_of(kind).out(config_, layer_); }

  StoredRows alone(std::string_view module, MatrixKind kind) const {
    return {std::string(module), rows_of(kind), {{0, rows_of(kind)}}};
  }
  /// Among the rows of `kinds`, which follow each other in each of `groups` groups.
  StoredRows among(std::string_view module, int64_t groups, std::initializer_list<MatrixKind> kinds,
                   MatrixKind kind) const {
    int64_t group = 0;
    RowRange own;
    for (const MatrixKind next : kinds) {
      const int64_t rows = rows_of(next) / groups;
      if (next == kind) own = {group, group + rows};
      group += rows;
    }
    StoredRows made{std::string(module), groups * group, {}};
    for (int64_t begin = 0; begin < made.rows; begin += group)
      made.blocks.push_back({begin + own.begin, begin + own.end});
    return made;
  }

  /// For each head its query's rows, then its gate's.
  StoredRows of_gated_queries(MatrixKind kind) const {
    return among(traits_.names.q, config_.num_heads, {MatrixKind::q, MatrixKind::attention_gate},
                 kind);
  }

  /// With 4 heads over 2 KV heads the rows are
  ///     by_kv_head   q0 q1 k0 v0 q2 q3 k1 v1
  ///     q_k_v        q0 q1 q2 q3 k0 k1 v0 v1
  StoredRows of_qkv(MatrixKind kind) const {
    const int64_t groups = traits_.qkv_rows == QkvRows::by_kv_head ? config_.num_kv_heads : 1;
    return among(traits_.names.qkv, groups, {MatrixKind::q, MatrixKind::k, MatrixKind::v}, kind);
  }

  StoredRows of_recurrence(MatrixKind kind) const {
    using enum MatrixKind;
    const RecurrentNames& names = traits_.names.recurrent;
    if (!names.zvkqa.empty()) return of_mamba(kind);
    if (!names.qkvz.empty())
      return among(names.qkvz, config_.recurrent.value().key_heads,
                   {recurrent_q, recurrent_k, recurrent_v, recurrent_z}, kind);
    if (kind == recurrent_z) return alone(names.z, kind);
    return among(names.qkv, 1, {recurrent_q, recurrent_k, recurrent_v}, kind);
  }
  StoredRows of_decay(MatrixKind kind) const {
    using enum MatrixKind;
    const RecurrentNames& names = traits_.names.recurrent;
    if (!names.zvkqa.empty()) return of_mamba(kind);
    if (!names.ba.empty())
      return among(names.ba, config_.recurrent.value().key_heads, {recurrent_b, recurrent_a}, kind);
    return alone(kind == recurrent_a ? names.a : names.b, kind);
  }
  StoredRows of_mamba(MatrixKind kind) const {
    using enum MatrixKind;
    return among(traits_.names.recurrent.zvkqa, 1,
                 {recurrent_z, recurrent_v, recurrent_k, recurrent_q, recurrent_a}, kind);
  }

  const ModelConfig& config_;
  const FamilyTraits& traits_;
  int64_t layer_;
};

}  // namespace

std::vector<RowRange> StoredRows::of(RowRange wanted) const {
  std::vector<RowRange> found;
  int64_t first = 0;  // the row of the matrix with which the block begins
  for (const RowRange& block : blocks) {
    const int64_t begin = std::max(wanted.begin, first),
                  end = std::min(wanted.end, first + block.size());
    if (begin < end) found.push_back({block.begin + begin - first, block.begin + end - first});
    first += block.size();
  }
  return found;
}

StoredRows stored_rows(const ModelConfig& config, MatrixKind kind, int64_t layer, int64_t expert) {
  StoredRows rows = Places(config, layer).of(kind);
  rows.module = layer_name(layer, fmt::format(fmt::runtime(rows.module), expert));
  return rows;
}

LinearWeight read_numbers(const ModelConfig& config, WeightLoader& loader, MatrixKind kind,
                          int64_t layer, int64_t expert) {
  const StoredRows rows = stored_rows(config, kind, layer, expert);
  const std::string name = rows.module + ".weight";
  if (is_stored_as_codes(config, kind) && !loader.has_numbers(name)) return {};
  const MatrixRole& role = role_of(kind);
  LinearWeight::Part all{loader.matrix(name, rows.rows, role.in(config, layer)), {}};
  if (role.has_bias(config)) all.bias = loader.vector(rows.module + ".bias", rows.rows);
  LinearWeight matrix;
  for (const RowRange& block : rows.blocks)
    matrix.parts.push_back(slice_rows({{all}}, block.begin, block.size()).parts.front());
  return matrix;
}

}  // namespace pecia::model
