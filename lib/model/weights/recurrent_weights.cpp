// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/recurrent_weights.hpp"

#include "lib/model/config/family.hpp"
#include "lib/model/weights/stored_rows.hpp"
#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {
namespace {

class RecurrentReader {
 public:
  RecurrentReader(const ModelConfig& config, WeightLoader& loader, int64_t layer)
      : config_(config),
        sizes_(config.recurrent.value()),
        names_(traits_of(config.family).names.recurrent),
        loader_(loader),
        layer_(layer) {}

  RecurrentWeights read() {
    RecurrentWeights weights;
    weights.corrects = sizes_.corrects;
    weights.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
      matrix = read_numbers(config_, loader_, kind, layer_);
    });
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

  const ModelConfig& config_;
  const RecurrentConfig& sizes_;
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
