// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What each kind of matrix is for: its shape, and how it is cut over ranks that hold parts of a
/// layer, follow from that. Source: Megatron-LM, §3.

#include <array>
#include <cstdint>
#include <string_view>

#include "lib/model/config.hpp"
#include "lib/model/linear_weight.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::model {

enum class MatrixKind : uint8_t { q, k, v, o, gate, up, down, head };

/// Those of a layer, in the order in which it uses them; and all.
inline constexpr std::array layer_kinds{MatrixKind::q,   MatrixKind::k,    MatrixKind::v,
                                        MatrixKind::o,   MatrixKind::gate, MatrixKind::up,
                                        MatrixKind::down};
inline constexpr size_t num_matrix_kinds = layer_kinds.size() + 1;

/// What is shared out over ranks: elements of the query heads, of the KV heads, of the FFN's width,
/// or of the vocabulary.
enum class CutUnit : uint8_t { query_heads, kv_heads, ffn, vocab };

struct MatrixRole {
  std::string_view name;
  CutUnit unit;
  /// outputs: [unit, hidden], whose products stand side by side; inputs: [hidden, unit], whose
  /// products are added, so that part 0 alone has the bias.
  enum class Side : uint8_t { outputs, inputs } side;
  /// Whether the model's matrices of this kind have a bias; null: never.
  bool ModelConfig::*bias;

  int64_t out(const ModelConfig& config) const;
  int64_t in(const ModelConfig& config) const;
  bool has_bias(const ModelConfig& config) const { return bias != nullptr && config.*bias; }
};

const MatrixRole& role_of(MatrixKind kind);

/// The part of the unit's elements that a cut has. Parts of KV heads overlap where several ranks
/// share one.
parallel::RowRange unit_part(const ModelConfig& config, CutUnit unit, parallel::WeightCut cut);

/// `cut` of a matrix that is itself `held` of the whole one (see cut_layer): a view.
LinearWeight cut_matrix(const LinearWeight& matrix, MatrixKind kind, const ModelConfig& config,
                        parallel::WeightCut held, parallel::WeightCut cut);

}  // namespace pecia::model
