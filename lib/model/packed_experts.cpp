// SPDX-License-Identifier: Apache-2.0
#include "lib/model/packed_experts.hpp"

#include <atomic>
#include <cmath>
#include <cstring>

#include "lib/model/weight_names.hpp"

namespace pecia::model {
namespace {

using parallel::RowRange;

constexpr int64_t block_inputs = 32, block_bytes = 16;
constexpr float fp4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

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
    if (inputs % block_inputs != 0)
      fail<InputError>("{}: tensor '{}' has blocks of {} inputs, which do not divide its {} inputs",
                       loader.file_of(blocks), blocks, block_inputs, inputs);
    blocks_ = loader.codes(blocks, {experts, outputs, inputs / block_inputs, block_bytes});
    scales_ = loader.codes(name + "_scales", {experts, outputs, inputs / block_inputs});
    const auto* const scale = scales_.as<const uint8_t>();
    for (int64_t i = 0; i < scales_.elements(); ++i)
      if (scale[i] == 255)
        fail<InputError>(
            "{}: tensor '{}_scales' holds 255, which stands for NaN, at element {}; "
            "download the file again",
            loader.file_of(blocks), name, i);
  }

  DType type() const { return blocks_ ? DType::bf16 : numbers_.dtype(); }

  /// Writes inputs [range) of one output of an expert, in `type()`.
  void read(int64_t expert, int64_t output, RowRange range, std::byte* to) const {
    if (!blocks_) return copy_column(expert, output, range, to);
    auto* const numbers = reinterpret_cast<uint16_t*>(to);
    const int64_t row = (expert * outputs_ + output) * (inputs_ / block_inputs);
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t block = row + i / block_inputs;
      const uint8_t pair = blocks_.as<const uint8_t>()[block * block_bytes + i % block_inputs / 2];
      const int scale = scales_.as<const uint8_t>()[block] - 127;
      numbers[i - range.begin] =
          float_to_bf16(std::ldexp(fp4[i % 2 == 0 ? pair & 15 : pair >> 4], scale));
    }
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

/// Outputs of a matrix: `count` of them from `first` on, `step` apart.
struct Outputs {
  int64_t first, count, step = 1;
};

class Reader {
 public:
  Reader(device::ThreadPool& pool, std::vector<device::Buffer>& memory)
      : pool_(pool), memory_(memory) {}

  TensorView matrix(const PackedMatrices& from, int64_t expert, Outputs outputs, RowRange inputs) {
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
    return TensorView(buffer.data(), from.type(), {outputs.count, inputs.size()});
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
                                                 device::ThreadPool& pool,
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
  Reader reader(pool, memory);
  std::vector<GatedFfnWeights> weights(experts.count);
  for (int64_t e = 0; e < experts.count; ++e) {
    GatedFfnWeights& of = weights[e];
    of.gate.parts = {
        {reader.matrix(gate_up, e, gates, {0, hidden}), reader.bias(gate_up_bias, e, gates)}};
    of.up.parts = {
        {reader.matrix(gate_up, e, ups, {0, hidden}), reader.bias(gate_up_bias, e, ups)}};
    of.down.parts = {{reader.matrix(down, e, {0, hidden}, part), TensorView()}};
    if (cut.index == 0) of.down.parts.front().bias = reader.bias(down_bias, e, {0, hidden});
  }
  return weights;
}

}  // namespace pecia::model
