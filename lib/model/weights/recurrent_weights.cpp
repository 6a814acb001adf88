// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/recurrent_weights.hpp"

#include "lib/base/core/error.hpp"
#include "lib/model/config/family.hpp"
#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {
namespace {

/// Gives the rows of a matrix in turn.
class RowsInTurn {
 public:
  explicit RowsInTurn(const LinearWeight& all) : all_(all) {}

  /// Adds the next rows to a matrix as a block.
  void append_to(LinearWeight& matrix, int64_t rows) {
    matrix.parts.push_back(slice_rows(all_, row_, rows).parts.front());
    row_ += rows;
  }

 private:
  const LinearWeight& all_;
  int64_t row_ = 0;
};

class RecurrentReader {
 public:
  RecurrentReader(const ModelConfig& config, WeightLoader& loader, int64_t layer)
      : sizes_(config.recurrent.value()),
        hidden_(config.hidden),
        is_quantized_(config.quantization.has_value()),
        names_(traits_of(config.family).names.recurrent),
        loader_(loader),
        layer_(layer) {}

  RecurrentWeights read() {
    RecurrentWeights weights;
    weights.corrects = sizes_.corrects;
    if (!names_.qkvz.empty())
      read_by_key_head(weights);
    else if (!names_.zvkqa.empty())
      read_mamba(weights);
    else
      read_by_matrix(weights);
    weights.o = matrix(names_.o, hidden_, sizes_.values());
    read_convolution(weights);
    weights.rate = loader_.vector(layer_name(layer_, names_.rate), sizes_.heads);
    weights.step_bias = loader_.vector(layer_name(layer_, names_.step_bias), sizes_.heads);
    if (!names_.skip.empty())
      weights.skip = loader_.vector(layer_name(layer_, names_.skip), sizes_.heads);
    weights.norm = loader_.vector(full_name(names_.norm, ".weight"),
                                  sizes_.corrects ? sizes_.value_dim : sizes_.values());
    return weights;
  }

 private:
  std::string full_name(std::string_view name, const char* suffix) const {
    return layer_name(layer_, std::string(name) + suffix);
  }
  /// Throws Unsupported where the checkpoint has codes.
  LinearWeight matrix(std::string_view name, int64_t rows, int64_t columns) {
    const std::string weight = full_name(name, ".weight");
    if (is_quantized_ && !loader_.has_numbers(weight))
      fail<Unsupported>(
          "{}: '{}' is stored as codes, and those of recurrent layers are not implemented; use a "
          "checkpoint that leaves these layers in bf16",
          loader_.folder(), layer_name(layer_, name));
    return {{{loader_.matrix(weight, rows, columns), TensorView()}}};
  }

  void read_by_key_head(RecurrentWeights& weights) {
    const int64_t keys = sizes_.keys(), values = sizes_.values(), heads = sizes_.heads;
    const LinearWeight qkvz = matrix(names_.qkvz, 2 * keys + 2 * values, hidden_);
    const LinearWeight ba = matrix(names_.ba, 2 * heads, hidden_);
    RowsInTurn of_qkvz(qkvz), of_ba(ba);
    const int64_t of_each = heads / sizes_.key_heads;
    for (int64_t key_head = 0; key_head < sizes_.key_heads; ++key_head) {
      for (LinearWeight* of_keys : {&weights.q, &weights.k})
        of_qkvz.append_to(*of_keys, sizes_.key_dim);
      for (LinearWeight* of_heads : {&weights.v, &weights.z})
        of_qkvz.append_to(*of_heads, of_each * sizes_.value_dim);
      for (LinearWeight* of_heads : {&weights.b, &weights.a}) of_ba.append_to(*of_heads, of_each);
    }
  }

  void read_by_matrix(RecurrentWeights& weights) {
    const LinearWeight qkv = matrix(names_.qkv, sizes_.channels(), hidden_);
    RowsInTurn rows(qkv);
    rows.append_to(weights.q, sizes_.keys()), rows.append_to(weights.k, sizes_.keys());
    rows.append_to(weights.v, sizes_.values());
    weights.z = matrix(names_.z, sizes_.values(), hidden_);
    weights.b = matrix(names_.b, sizes_.heads, hidden_);
    weights.a = matrix(names_.a, sizes_.heads, hidden_);
  }

  void read_mamba(RecurrentWeights& weights) {
    const int64_t keys = sizes_.keys(), values = sizes_.values(), heads = sizes_.heads;
    const LinearWeight all = matrix(names_.zvkqa, 2 * values + 2 * keys + heads, hidden_);
    RowsInTurn rows(all);
    rows.append_to(weights.z, values), rows.append_to(weights.v, values);
    rows.append_to(weights.k, keys), rows.append_to(weights.q, keys);
    rows.append_to(weights.a, heads);
  }

  void read_convolution(RecurrentWeights& weights) {
    const int64_t channels = sizes_.channels(), rows = sizes_.conv_rows;
    const TensorView all = loader_.tensor(full_name(names_.conv, ".weight"), {channels, 1, rows})
                               .reshape({channels, rows});
    TensorView biases;
    if (sizes_.conv_bias) biases = loader_.vector(full_name(names_.conv, ".bias"), channels);
    int64_t channel = 0;
    const auto next = [&](TensorView& of, TensorView& bias, int64_t count) {
      of = all.slice_rows(channel, count);
      if (biases) bias = biases.slice_rows(channel, count);
      channel += count;
    };
    const auto q = [&] { next(weights.q_conv, weights.q_conv_bias, sizes_.keys()); };
    const auto k = [&] { next(weights.k_conv, weights.k_conv_bias, sizes_.keys()); };
    const auto v = [&] { next(weights.v_conv, weights.v_conv_bias, sizes_.values()); };
    if (sizes_.corrects)
      q(), k(), v();
    else
      v(), k(), q();
  }

  const RecurrentConfig& sizes_;
  int64_t hidden_;
  bool is_quantized_;
  const RecurrentNames& names_;
  WeightLoader& loader_;
  int64_t layer_;
};

}  // namespace

RecurrentWeights read_recurrent_weights(const ModelConfig& config, WeightLoader& loader,
                                        int64_t layer) {
  return RecurrentReader(config, loader, layer).read();
}

}  // namespace pecia::model
