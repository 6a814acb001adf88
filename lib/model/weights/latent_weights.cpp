// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/latent_weights.hpp"

#include <atomic>
#include <cstring>

#include "lib/model/config/family.hpp"
#include "lib/model/weights/quantized_matrix.hpp"
#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {
namespace {

/// to[column, row] = from[row, column]; `bytes` of an element.
void transpose(const TensorView& from, int64_t bytes, std::byte* to) {
  const int64_t rows = from.rows(), columns = from.size(1);
  for (int64_t row = 0; row < rows; ++row) {
    const auto* const at = static_cast<const std::byte*>(from.row(row));
    for (int64_t column = 0; column < columns; ++column)
      std::memcpy(to + (column * rows + row) * bytes, at + column * bytes, bytes);
  }
}

}  // namespace

void read_latent_up(const ModelConfig& config, WeightLoader& loader, int64_t layer,
                    parallel::WeightCut cut, std::optional<DType> dtype, device::ThreadPool& pool,
                    std::vector<device::Buffer>& memory, LatentWeights& weights) {
  const LatentConfig& latent = config.latent.value();
  const int64_t of_head = latent.nope_dim + latent.value_dim;
  const std::string module = layer_name(layer, traits_of(config.family).names.kv_up);
  const parallel::RowRange outputs = unit_part(config, CutUnit::output_heads, cut);
  const int64_t first = outputs.begin / latent.value_dim, heads = outputs.size() / latent.value_dim;
  const parallel::RowRange rows{first * of_head, (first + heads) * of_head};
  const int64_t all_rows = config.num_heads * of_head;
  std::vector<device::Buffer> widened;
  TensorView all;
  if (!config.quantization || loader.has_numbers(module + ".weight"))
    all = loader.matrix(module + ".weight", all_rows, latent.kv_rank)
              .slice_rows(rows.begin, rows.size());
  else
    all = QuantizedMatrix(loader, module, all_rows, latent.kv_rank, *config.quantization)
              .numbers({rows}, {0, latent.kv_rank},
                       dtype.value_or(config.stored_dtype.value_or(DType::bf16)), pool, widened)
              .weight;

  const int64_t bytes = size_of(all.dtype());
  const auto make = [&](int64_t height, int64_t width) {
    device::Buffer& buffer = memory.emplace_back(height * width * bytes);
    return TensorView(buffer.data(), all.dtype(), {height, width});
  };
  const TensorView keys = make(heads * latent.kv_rank, latent.nope_dim);
  const TensorView values = make(heads * latent.value_dim, latent.kv_rank);
  const TensorView own_keys = make(heads * latent.nope_dim, latent.kv_rank);
  std::atomic<int64_t> next{0};
  pool.run(
      [&](int) {
        for (int64_t head; (head = next.fetch_add(1)) < heads;) {
          const int64_t row = head * of_head;
          const TensorView of_keys = all.slice_rows(row, latent.nope_dim);
          transpose(of_keys, bytes, static_cast<std::byte*>(keys.row(head * latent.kv_rank)));
          std::memcpy(own_keys.row(head * latent.nope_dim), of_keys.data(),
                      of_keys.elements() * bytes);
          const TensorView of_values = all.slice_rows(row + latent.nope_dim, latent.value_dim);
          std::memcpy(values.row(head * latent.value_dim), of_values.data(),
                      of_values.elements() * bytes);
        }
      },
      [] {});
  weights.key_up = {{{keys, TensorView()}}};
  weights.value_up = {{{values, TensorView()}}};
  weights.head_keys = {{{own_keys, TensorView()}}};
}

}  // namespace pecia::model
