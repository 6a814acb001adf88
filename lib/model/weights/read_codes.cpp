// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/read_codes.hpp"

#include "lib/model/config/family.hpp"
#include "lib/model/weights/convert.hpp"
#include "lib/model/weights/quantized_matrix.hpp"

namespace pecia::model {
namespace {

/// The module's name in its layer. Those of experts have {} for the expert.
std::string_view module_of(const WeightNames& names, MatrixKind kind) {
  switch (kind) {
    case MatrixKind::q:
      return names.q;
    case MatrixKind::k:
      return names.k;
    case MatrixKind::v:
      return names.v;
    case MatrixKind::q_down:
    case MatrixKind::kv_down:
    case MatrixKind::key_up:
    case MatrixKind::value_up:
    case MatrixKind::head_keys:
    case MatrixKind::recurrent_q:
    case MatrixKind::recurrent_k:
    case MatrixKind::recurrent_v:
    case MatrixKind::recurrent_z:
    case MatrixKind::recurrent_a:
    case MatrixKind::recurrent_b:
    case MatrixKind::recurrent_o:
      break;  // config.cpp refuses codes of latents, and those of recurrences are never codes
    case MatrixKind::attention_gate:
      return names.attention_gate;
    case MatrixKind::o:
      return names.o;
    case MatrixKind::gate:
      return names.gate;
    case MatrixKind::up:
      return names.up;
    case MatrixKind::down:
      return names.down;
    case MatrixKind::router:
      return names.router;
    case MatrixKind::to_latents:
      return names.to_latents;
    case MatrixKind::from_latents:
      return names.from_latents;
    case MatrixKind::expert_gate:
      return names.expert_gate;
    case MatrixKind::expert_up:
      return names.expert_up;
    case MatrixKind::expert_down:
      return names.expert_down;
    case MatrixKind::shared_gate:
      return names.shared_gate;
    case MatrixKind::shared_up:
      return names.shared_up;
    case MatrixKind::shared_down:
      return names.shared_down;
    case MatrixKind::shared_row_gate:
      return names.shared_row_gate;
    case MatrixKind::second_gate:
      return names.second_gate;
    case MatrixKind::second_up:
      return names.second_up;
    case MatrixKind::head:
      return names.head;
  }
  return "";
}

/// Some programs write a bias of zeros for every module. It is no left-over.
void pass_over_zeros(WeightLoader& loader, const std::string& name, int64_t size) {
  if (!loader.contains(name)) return;
  const TensorView bias = loader.vector(name, size);
  for (int64_t i = 0; i < size; ++i)
    if (load_as_float(bias.data(), bias.dtype(), i) != 0)
      fail<InputError>("{}: tensor '{}' is not zero, but this family has no such bias",
                       loader.file_of(name), name);
}

/// The module's name in the checkpoint.
std::string stored_name(const ModelConfig& config, int64_t layer, MatrixKind kind, int64_t expert) {
  const std::string_view module = module_of(traits_of(config.family).names, kind);
  return layer_name(layer, fmt::format(fmt::runtime(module), expert));
}

/// Checks the matrices of an expert that another rank holds, so that they are no left-overs.
void pass_over_expert(const ModelConfig& config, WeightLoader& loader, int64_t layer,
                      int64_t expert) {
  for (const MatrixKind kind :
       {MatrixKind::expert_gate, MatrixKind::expert_up, MatrixKind::expert_down}) {
    const std::string name = stored_name(config, layer, kind, expert);
    if (num_matrices(config, kind, layer) == 0 || loader.has_numbers(name + ".weight")) continue;
    const MatrixRole& role = role_of(kind);
    const int64_t out = role.out(config);
    const QuantizedMatrix stored(loader, name, out, role.in(config), *config.quantization);
    if (role.has_bias(config))
      loader.vector(name + ".bias", out);
    else
      pass_over_zeros(loader, name + ".bias", out);
  }
}

}  // namespace

void read_codes(const ModelConfig& config, WeightLoader& loader, int64_t layer,
                parallel::WeightCut cut, const CodeUse& use, std::optional<DType> dtype,
                device::ThreadPool& pool, std::vector<device::Buffer>& memory, LayerWeights& to) {
  const DType wide = dtype.value_or(config.stored_dtype.value_or(DType::bf16));
  parallel::RowRange held;
  if (!to.mixture.experts.empty()) {
    held = experts_of(config, cut);
    for (int64_t expert = 0; expert < config.experts->count; ++expert)
      if (expert < held.begin || expert >= held.end)
        pass_over_expert(config, loader, layer, expert);
  }
  int64_t expert = held.begin;
  to.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
    const MatrixRole& role = role_of(kind);
    const std::string name = stored_name(config, layer, kind, expert);
    if (kind == MatrixKind::expert_down) ++expert;
    if (!matrix.parts.empty()) return;
    const int64_t out = role.out(config), in = role.in(config);
    const QuantizedMatrix stored(loader, name, out, in, *config.quantization);
    const parallel::RowRange part = unit_part(config, role.unit, cut);
    const bool outputs = role.side == MatrixRole::Side::outputs;
    const parallel::RowRange rows = outputs ? part : parallel::RowRange{0, out};
    const parallel::RowRange columns = outputs ? parallel::RowRange{0, in} : part;
    const bool stays = resident_code(config, kind, use).has_value();
    LinearWeight::Part made = stays ? stored.codes(rows, columns, pool, memory)
                                    : stored.numbers(rows, columns, wide, pool, memory);
    if (!stays)
      if (const auto index = first_not_finite(made.weight, 0, made.weight.elements(), pool))
        fail<InputError>(
            "{}: the numbers of '{}' hold {} in row {}, which {} cannot hold; download the file "
            "again, or choose another model.dtype",
            loader.folder(), name, load_as_float(made.weight.data(), wide, *index),
            rows.begin + *index / columns.size(), name_of(wide));
    if (role.has_bias(config)) {
      const TensorView bias = loader.vector(name + ".bias", out);
      if (outputs || has_added_bias(role.unit, cut))
        made.bias = bias.slice_rows(rows.begin, rows.size());
    } else {
      pass_over_zeros(loader, name + ".bias", out);
    }
    matrix = {{made}};
  });
}

}  // namespace pecia::model
