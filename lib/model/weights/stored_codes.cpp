// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/stored_codes.hpp"

#include <algorithm>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"
#include "lib/model/config/family.hpp"
#include "lib/model/weights/stored_rows.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::model {
namespace {
/// How many neighbours of a row a cut keeps together.
int64_t uncut(const StoredQuantization& quantization, DType code) {
  return quantization.block_columns > 0 ? quantization.block_columns : numbers_of(code);
}
/// Whether LinearArgs has row-invariant products of the codes.
bool has_invariant_products(StoredForm form) {
  return form == StoredForm::mxfp4 || form == StoredForm::nvfp4;
}
}  // namespace

CodeUse codes_kept(const ModelConfig& config, int cut_ranks, bool layout, int ep, bool gpus) {
  if (!layout)
    return {.kept = true, .row_parts = cut_ranks, .whole_experts = ep > 1, .stored_fp8 = gpus};
  if (config.quantization && !has_invariant_products(config.quantization->form))
    return {.kept = false};
  const int splits = parallel::layout_splits(config.common_heads(), config.common_ffn());
  return {.kept = true, .row_parts = std::max(cut_ranks, splits)};
}

namespace {
/// Which products take numbers alone: of decays, and of kv_b's parts.
bool is_of_decay(MatrixKind kind) {
  return kind == MatrixKind::recurrent_a || kind == MatrixKind::recurrent_b;
}
bool is_of_latents(MatrixKind kind) {
  return kind == MatrixKind::key_up || kind == MatrixKind::value_up ||
         kind == MatrixKind::head_keys;
}
}  // namespace

bool is_stored_as_codes(const ModelConfig& config, MatrixKind kind) {
  using enum MatrixKind;
  if (!config.quantization || kind == router || kind == shared_row_gate || kind == head)
    return false;
  const bool of_experts = role_of(kind).unit == CutUnit::expert_ffn;
  if (config.quantization->form == StoredForm::mxfp4) return of_experts;
  // Tensors of all experts of a layer are none that quantisers know.
  const WeightNames& names = traits_of(config.family).names;
  return !of_experts || !names.expert_down.empty();
}

namespace {
bool is_in_blocks(const ModelConfig& config, MatrixKind kind) {
  return stored_rows(config, kind, 0).blocks.size() > 1;
}
bool takes_numbers(const ModelConfig& config, MatrixKind kind) {
  if (config.quantization->form == StoredForm::mxfp4) return false;
  return is_of_decay(kind) || is_of_latents(kind) || is_in_blocks(config, kind);
}
}  // namespace

std::optional<DType> resident_code(const ModelConfig& config, MatrixKind kind, const CodeUse& use) {
  if (!is_stored_as_codes(config, kind) || !use.kept || takes_numbers(config, kind)) return {};
  const std::optional<DType> code = config.quantization->code();
  if (code == DType::fp8 && !use.stored_fp8) return {};
  const MatrixRole& role = role_of(kind);
  const bool is_whole = use.whole_experts && role.unit == CutUnit::expert_ffn;
  const bool rows_are_cut = role.side == MatrixRole::Side::inputs && use.row_parts > 1 &&
                            !is_whole && !is_whole_everywhere(role.unit);
  if (code && rows_are_cut &&
      role.in(config) % (use.row_parts * uncut(*config.quantization, *code)) != 0)
    return {};
  return code;
}

std::string why_widened(const ModelConfig& config, MatrixKind kind, const CodeUse& use) {
  if (!is_stored_as_codes(config, kind) || resident_code(config, kind, use)) return "";
  const StoredQuantization& quantization = *config.quantization;
  if (quantization.form == StoredForm::fp8 && use.kept && !use.stored_fp8)
    return "no products on CPUs take codes of fp8";
  if (quantization.form == StoredForm::fp8 && !quantization.code())
    return fmt::format("products take blocks of {} columns, and not of {}", fp8_block,
                       quantization.block_columns);
  if (quantization.bits == 8 && !quantization.code() && !quantization.reordered)
    return "products take codes of 8 bits only with one scale for each row, and no zeros";
  if (quantization.reordered)
    return "desc_act or actorder spread the numbers of a group over a row";
  if (is_of_decay(kind) || is_of_latents(kind)) return "its products take numbers";
  if (is_in_blocks(config, kind)) return "its rows alternate with another matrix's";
  if (!use.kept)
    return "model.dtype names a type of numbers, or reproducible: layout has no products with "
           "codes other than mxfp4 and nvfp4";
  return fmt::format("{} parts of a row of {} do not begin with groups of codes", use.row_parts,
                     role_of(kind).in(config));
}

int64_t stored_fp8_scales(const StoredQuantization& quantization, int64_t numbers) {
  return quantization.block_columns == 0 ? 1 : fp8_blocks(numbers);
}

int64_t resident_row_bytes(const ModelConfig& config, DType type, int64_t numbers) {
  if (type == DType::fp8 && config.quantization && config.quantization->code() == type)
    return numbers + stored_fp8_scales(*config.quantization, numbers) * size_of(scale_type(type));
  return row_bytes(type, numbers,
                   config.quantization ? config.quantization->shared_by() : int4_group);
}

namespace {

constexpr auto all_kinds = [] {
  std::array<MatrixKind, num_matrix_kinds> kinds{};
  for (size_t i = 0; i < num_matrix_kinds; ++i) kinds[i] = static_cast<MatrixKind>(i);
  return kinds;
}();

/// What a matrix of the kind has more bytes as codes.
int64_t more_bytes(const ModelConfig& config, MatrixKind kind, DType numbers, const CodeUse& use) {
  const std::optional<DType> code = resident_code(config, kind, use);
  if (!code) return 0;
  const MatrixRole& role = role_of(kind);
  return role.out(config) *
         (resident_row_bytes(config, *code, role.in(config)) - row_bytes(numbers, role.in(config)));
}

}  // namespace

int64_t bytes_by_codes(const ModelConfig& config, DType numbers, const CodeUse& use) {
  int64_t bytes = 0;
  for (const MatrixKind kind : all_kinds)
    if (const int64_t count = num_matrices(config, kind); count > 0)
      bytes += count * more_bytes(config, kind, numbers, use);
  return bytes;
}

int64_t active_bytes_by_codes(const ModelConfig& config, DType numbers, const CodeUse& use) {
  int64_t bytes = 0;
  for (const MatrixKind kind : all_kinds) {
    int64_t count = num_matrices(config, kind);
    if (count == 0) continue;
    if (role_of(kind).unit == CutUnit::expert_ffn)
      count = count / config.experts->count * config.experts->per_token;
    bytes += count * more_bytes(config, kind, numbers, use);
  }
  return bytes;
}

}  // namespace pecia::model
