// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/packed_experts.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lib/base/core/codes.hpp"
#include "lib/model/config/family.hpp"
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

  /// Writes inputs [range) of some outputs of an expert, in `type()`, one output after the other.
  void read(int64_t expert, Outputs outputs, RowRange range, std::byte* to) const {
    if (blocks_) return widen(expert, outputs, range, reinterpret_cast<uint16_t*>(to));
    if (size_of(numbers_.dtype()) == size_of(DType::fp32))
      copy_columns(expert, outputs, range, reinterpret_cast<uint32_t*>(to));
    else
      copy_columns(expert, outputs, range, reinterpret_cast<uint16_t*>(to));
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
  template <typename Bits>
  void copy_columns(int64_t expert, Outputs outputs, RowRange range, Bits* to) const {
    const auto* from = numbers_.as<const Bits>() + (expert * inputs_ + range.begin) * outputs_;
    for (int64_t i = 0; i < range.size(); ++i, from += outputs_)
      for (int64_t o = 0; o < outputs.count; ++o)
        to[o * range.size() + i] = from[outputs.first + o * outputs.step];
  }

  void widen(int64_t expert, Outputs outputs, RowRange range, uint16_t* to) const {
    for (int64_t o = 0; o < outputs.count; ++o) {
      const LinearWeight::Part row =
          codes(expert, {outputs.first + o * outputs.step, 1}, {0, inputs_});
      for (int64_t i = range.begin; i < range.end; ++i)
        *to++ = float_to_bf16(load_number(row.weight.data(), DType::mxfp4, row.scales.data(), i));
    }
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
    constexpr int64_t rows_at_once = 32;  // 64 bytes of bf16 of each input
    std::atomic<int64_t> next{0};
    pool_.run(
        [&](int) {
          for (int64_t row; (row = next.fetch_add(rows_at_once)) < outputs.count;)
            from.read(expert,
                      {outputs.first + row * outputs.step,
                       std::min(rows_at_once, outputs.count - row), outputs.step},
                      inputs, buffer.as<std::byte>() + row * row_bytes);
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
  const FamilyTraits& traits = traits_of(config.family);
  const std::string gate_up_name = layer_name(layer, traits.names.experts_gate_up);
  const std::string down_name = layer_name(layer, traits.names.experts_down);
  const PackedMatrices gate_up(loader, gate_up_name, experts.count, 2 * ffn, hidden);
  const PackedMatrices down(loader, down_name, experts.count, hidden, ffn);
  const auto biases = [&](const std::string& of, int64_t outputs) {
    return config.expert_bias ? loader.tensor(of + "_bias", {experts.count, outputs})
                              : TensorView();
  };
  const TensorView gate_up_bias = biases(gate_up_name, 2 * ffn);
  const TensorView down_bias = biases(down_name, hidden);

  const RowRange part = unit_part(config, CutUnit::expert_ffn, cut);
  const bool alternate = traits.gate_up_rows_alternate;
  const Outputs gates{alternate ? 2 * part.begin : part.begin, part.size(), alternate ? 2 : 1};
  const Outputs ups{alternate ? 2 * part.begin + 1 : ffn + part.begin, part.size(), gates.step};
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
      if (gate_up_bias) made.bias = reader.bias(gate_up_bias, e, outputs);
      return LinearWeight{{made}};
    };
    expert.gate = of_gate_up(gates);
    expert.up = of_gate_up(ups);
    LinearWeight::Part made = reader.matrix(down, e, {0, hidden}, part, down_stays);
    if (down_bias && has_added_bias(CutUnit::expert_ffn, cut))
      made.bias = reader.bias(down_bias, e, {0, hidden});
    expert.down = {{made}};
  }
  return weights;
}

}  // namespace pecia::model
