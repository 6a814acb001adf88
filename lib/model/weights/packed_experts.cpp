// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/packed_experts.hpp"

#include <atomic>
#include <cstring>

#include "lib/base/core/codes.hpp"
#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {
namespace {

using parallel::RowRange;

/// Outputs of a matrix: `count` of them from `first` on, `step` apart.
struct Outputs {
  int64_t first, count, step = 1;
};

/// One matrix of each expert, [outputs, inputs] as a product takes it, of one of the two ways to
/// store them.
class PackedMatrices {
 public:
  PackedMatrices(WeightLoader& loader, const std::string& name, int64_t experts, int64_t outputs,
                 int64_t inputs)
      : outputs_(outputs), inputs_(inputs) {
    const std::string blocks = name + "_blocks";
    if (!loader.contains(blocks)) {
      numbers_ = loader.tensor(name, {experts, inputs, outputs});
      return;
    }
    if (inputs % mxfp4_block != 0)
      fail<InputError>("{}: tensor '{}' has blocks of {} inputs, which do not divide its {} inputs",
                       loader.file_of(blocks), blocks, mxfp4_block, inputs);
    const int64_t row = inputs / mxfp4_block;
    blocks_ = loader.mxfp4_codes(blocks, {experts, outputs, row, size_of(DType::mxfp4)});
    scales_ = loader.mxfp4_scales_of(name + "_scales", {experts, outputs, row});
  }

  bool has_codes() const { return static_cast<bool>(blocks_); }
  DType type() const { return blocks_ ? DType::bf16 : numbers_.dtype(); }

  /// Writes inputs [range) of one output of an expert, in `type()`.
  void read(int64_t expert, int64_t output, RowRange range, std::byte* to) const {
    if (!blocks_) return copy_column(expert, output, range, to);
    auto* const numbers = reinterpret_cast<uint16_t*>(to);
    const LinearWeight::Part row = codes(expert, {output, 1}, {0, inputs_});
    for (int64_t i = range.begin; i < range.end; ++i)
      numbers[i - range.begin] =
          float_to_bf16(load_number(row.weight.data(), DType::mxfp4, row.scales.data(), i));
  }

  /// A view of whole blocks of some outputs.
  LinearWeight::Part codes(int64_t expert, Outputs outputs, RowRange inputs) const {
    const int64_t blocks = inputs_ / mxfp4_block;
    const auto rows = [&](const TensorView& tensor, DType type) {
      const auto* const first = static_cast<const std::byte*>(tensor.row(expert)) +
                                outputs.first * blocks * size_of(type);
      // The step's rows side by side are one row of the view, of which it shows the first.
      const TensorView steps(first, type, {outputs.count, outputs.step * blocks});
      return steps.slice_columns(0, blocks);
    };
    const LinearWeight::Part all{rows(blocks_, DType::mxfp4), {}, rows(scales_, DType::uint8)};
    return all.columns(inputs.begin, inputs.size());
  }

 private:
  void copy_column(int64_t expert, int64_t output, RowRange range, std::byte* to) const {
    const int64_t bytes = size_of(numbers_.dtype());
    const auto* const from = static_cast<const std::byte*>(numbers_.data());
    for (int64_t i = range.begin; i < range.end; ++i)
      std::memcpy(to + (i - range.begin) * bytes,
                  from + ((expert * inputs_ + i) * outputs_ + output) * bytes, bytes);
  }

  int64_t outputs_, inputs_;
  TensorView numbers_;          ///< [experts, inputs, outputs], or absent
  TensorView blocks_, scales_;  ///< of MXFP4, or absent
};

class Reader {
 public:
  Reader(device::ThreadPool& pool, std::vector<device::Buffer>& memory)
      : pool_(pool), memory_(memory) {}

  /// The matrix without its bias, as codes if it is to stay them.
  LinearWeight::Part matrix(const PackedMatrices& from, int64_t expert, Outputs outputs,
                            RowRange inputs, bool stays_codes) {
    if (stays_codes && from.has_codes()) return from.codes(expert, outputs, inputs);
    const int64_t row_bytes = inputs.size() * size_of(from.type());
    device::Buffer& buffer = memory_.emplace_back(outputs.count * row_bytes);
    std::atomic<int64_t> next{0};
    pool_.run(
        [&](int) {
          for (int64_t row; (row = next.fetch_add(1)) < outputs.count;)
            from.read(expert, outputs.first + row * outputs.step, inputs,
                      buffer.as<std::byte>() + row * row_bytes);
        },
        [] {});
    return {TensorView(buffer.data(), from.type(), {outputs.count, inputs.size()}), {}};
  }

  TensorView bias(const TensorView& biases, int64_t expert, Outputs outputs) {
    const int64_t bytes = size_of(biases.dtype());
    device::Buffer& buffer = memory_.emplace_back(outputs.count * bytes);
    const auto* const from = static_cast<const std::byte*>(biases.row(expert));
    for (int64_t i = 0; i < outputs.count; ++i)
      std::memcpy(buffer.as<std::byte>() + i * bytes,
                  from + (outputs.first + i * outputs.step) * bytes, bytes);
    return TensorView(buffer.data(), biases.dtype(), {outputs.count});
  }

 private:
  device::ThreadPool& pool_;
  std::vector<device::Buffer>& memory_;
};

}  // namespace

std::vector<GatedFfnWeights> read_packed_experts(const ModelConfig& config, WeightLoader& loader,
                                                 int64_t layer, parallel::WeightCut cut,
                                                 const CodeUse& codes, device::ThreadPool& pool,
                                                 std::vector<device::Buffer>& memory) {
  const ExpertsConfig& experts = config.experts.value();
  const int64_t hidden = config.hidden, ffn = experts.ffn;
  const auto name = [&](const char* of) {
    return layer_name(layer, std::string("mlp.experts.") + of);
  };
  const PackedMatrices gate_up(loader, name("gate_up_proj"), experts.count, 2 * ffn, hidden);
  const PackedMatrices down(loader, name("down_proj"), experts.count, hidden, ffn);
  const TensorView gate_up_bias =
      loader.tensor(name("gate_up_proj_bias"), {experts.count, 2 * ffn});
  const TensorView down_bias = loader.tensor(name("down_proj_bias"), {experts.count, hidden});

  const RowRange part = unit_part(config, CutUnit::expert_ffn, cut);
  const Outputs gates{2 * part.begin, part.size(), 2}, ups{2 * part.begin + 1, part.size(), 2};
  const auto stays = [&](MatrixKind kind) {
    return resident_code(config, kind, codes) == DType::mxfp4;
  };
  const bool rows_stay = stays(MatrixKind::expert_gate),
             down_stays = stays(MatrixKind::expert_down);
  Reader reader(pool, memory);
  const RowRange held = experts_of(config, cut);
  std::vector<GatedFfnWeights> weights(held.size());
  for (int64_t e = held.begin; e < held.end; ++e) {
    GatedFfnWeights& expert = weights[e - held.begin];
    const auto of_gate_up = [&](Outputs outputs) {
      LinearWeight::Part made = reader.matrix(gate_up, e, outputs, {0, hidden}, rows_stay);
      made.bias = reader.bias(gate_up_bias, e, outputs);
      return LinearWeight{{made}};
    };
    expert.gate = of_gate_up(gates);
    expert.up = of_gate_up(ups);
    LinearWeight::Part made = reader.matrix(down, e, {0, hidden}, part, down_stays);
    if (has_added_bias(CutUnit::expert_ffn, cut))
      made.bias = reader.bias(down_bias, e, {0, hidden});
    expert.down = {{made}};
  }
  return weights;
}

}  // namespace pecia::model
