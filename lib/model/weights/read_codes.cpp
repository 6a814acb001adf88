// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/read_codes.hpp"

#include <cstring>

#include "lib/model/weights/quantized_matrix.hpp"
#include "lib/model/weights/stored_rows.hpp"

namespace pecia::model {
namespace {

using parallel::RowRange;

/// Some programs write a bias of zeros for every module. It is no left-over.
void pass_over_zeros(WeightLoader& loader, const std::string& name, int64_t size) {
  if (!loader.contains(name)) return;
  const TensorView bias = loader.vector(name, size);
  for (int64_t i = 0; i < size; ++i)
    if (load_as_float(bias.data(), bias.dtype(), i) != 0)
      fail<InputError>("{}: tensor '{}' is not zero, but this family has no such bias",
                       loader.file_of(name), name);
}

/// Checks the matrices of an expert that another rank holds, so that they are no left-overs.
void pass_over_expert(const ModelConfig& config, WeightLoader& loader, int64_t layer,
                      int64_t expert) {
  for (const MatrixKind kind :
       {MatrixKind::expert_gate, MatrixKind::expert_up, MatrixKind::expert_down}) {
    if (num_matrices(config, kind, layer) == 0 || !is_stored_as_codes(config, kind)) continue;
    const StoredRows from = stored_rows(config, kind, layer, expert);
    if (loader.has_numbers(from.module + ".weight")) continue;
    const MatrixRole& role = role_of(kind);
    const QuantizedMatrix stored(loader, from.module, from.rows, role.in(config),
                                 *config.quantization);
    if (role.has_bias(config))
      loader.vector(from.module + ".bias", from.rows);
    else
      pass_over_zeros(loader, from.module + ".bias", from.rows);
  }
}

/// Some elements of a vector, one range after the other.
TensorView elements_of(const TensorView& vector, const std::vector<RowRange>& ranges,
                       std::vector<device::Buffer>& memory) {
  if (ranges.size() == 1) return vector.slice_rows(ranges.front().begin, ranges.front().size());
  const int64_t bytes = size_of(vector.dtype());
  int64_t count = 0;
  for (const RowRange& range : ranges) count += range.size();
  const TensorView made(memory.emplace_back(count * bytes).data(), vector.dtype(), {count});
  auto* to = static_cast<std::byte*>(made.data());
  for (const RowRange& range : ranges) {
    std::memcpy(to, vector.slice_rows(range.begin, range.size()).data(), range.size() * bytes);
    to += range.size() * bytes;
  }
  return made;
}

}  // namespace

void read_codes(const ModelConfig& config, WeightLoader& loader, int64_t layer,
                parallel::WeightCut cut, const CodeUse& use, std::optional<DType> dtype,
                device::ThreadPool& pool, std::vector<device::Buffer>& memory, LayerWeights& to) {
  const DType wide = dtype.value_or(config.stored_dtype.value_or(DType::bf16));
  RowRange held;
  if (!to.mixture.experts.empty()) {
    held = experts_of(config, cut);
    for (int64_t expert = 0; expert < config.experts->count; ++expert)
      if (expert < held.begin || expert >= held.end)
        pass_over_expert(config, loader, layer, expert);
  }
  int64_t expert = held.begin;
  to.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
    const MatrixRole& role = role_of(kind);
    const int64_t number = kind == MatrixKind::expert_down ? expert++ : expert;
    if (!matrix.parts.empty()) return;
    const StoredRows from = stored_rows(config, kind, layer, number);
    const int64_t in = role.in(config);
    const QuantizedMatrix stored(loader, from.module, from.rows, in, *config.quantization);
    const RowRange part = unit_part(config, role.unit, cut);
    const bool outputs = role.side == MatrixRole::Side::outputs;
    const std::vector<RowRange> rows = from.of(outputs ? part : RowRange{0, role.out(config)});
    const RowRange columns = outputs ? RowRange{0, in} : part;
    const bool stays = resident_code(config, kind, use).has_value();
    PECIA_CHECK(!stays || rows.size() <= 1, "codes of {} blocks of rows", rows.size());
    const RowRange block = rows.empty() ? RowRange{} : rows.front();
    LinearWeight::Part made = stays ? stored.codes(block, columns, pool, memory)
                                    : stored.numbers(rows, columns, wide, pool, memory);
    if (role.has_bias(config)) {
      const TensorView bias = loader.vector(from.module + ".bias", from.rows);
      if (outputs || has_added_bias(role.unit, cut)) made.bias = elements_of(bias, rows, memory);
    } else {
      pass_over_zeros(loader, from.module + ".bias", from.rows);
    }
    matrix = {{made}};
  });
}

}  // namespace pecia::model
