// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/residence.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/core/codes.hpp"
#include "lib/model/weights/convert.hpp"

namespace pecia::model {

Residence::Residence(const io::Checkpoint& checkpoint, std::optional<DType> dtype,
                     double norm_weight_offset, device::ThreadPool& pool)
    : checkpoint_(checkpoint), dtype_(dtype), norm_weight_offset_(norm_weight_offset), pool_(pool) {
  PECIA_CHECK(!dtype || is_float(*dtype), "weights resident as {}", name_of(*dtype));
}

TensorView Residence::matrix(const TensorView& stored) {
  TensorView tensor = stored;
  if (dtype_ && *dtype_ != stored.dtype()) {
    device::Buffer& buffer = converted.emplace_back(stored.elements() * size_of(*dtype_));
    tensor = TensorView(buffer.data(), *dtype_, {stored.size(0), stored.size(1)});
    convert(stored, tensor, pool_);
    if (const auto index = first_not_finite(tensor, 0, tensor.elements(), pool_))
      refuse_value(stored, *index);
  }
  resident_bytes += tensor.elements() * size_of(tensor.dtype());
  return tensor;
}

TensorView Residence::vector(const TensorView& stored) {
  if (stored) resident_bytes += stored.elements() * size_of(stored.dtype());
  return stored;
}

TensorView Residence::norm(const TensorView& stored, double divisor) {
  if (!stored || (norm_weight_offset_ == 0 && divisor == 1)) return vector(stored);
  device::Buffer& buffer = converted.emplace_back(stored.elements() * size_of(DType::fp32));
  const TensorView made(buffer.data(), DType::fp32, {stored.elements()});
  for (int64_t i = 0; i < stored.elements(); ++i) {
    const float weight =
        static_cast<float>(norm_weight_offset_) + load_as_float(stored.data(), stored.dtype(), i);
    made.as<float>()[i] = weight / static_cast<float>(divisor);
  }
  return vector(made);
}

TensorView Residence::ones(int64_t size) {
  const TensorView made(converted.emplace_back(size * size_of(DType::fp32)).data(), DType::fp32,
                        {size});
  std::fill_n(made.as<float>(), size, 1.0f);
  return vector(made);
}

TensorView Residence::wide(const TensorView& stored, double factor) {
  if (!stored || (stored.dtype() == DType::fp32 && factor == 1)) return vector(stored);
  device::Buffer& buffer = converted.emplace_back(stored.elements() * size_of(DType::fp32));
  const TensorView made =
      stored.rank() == 1 ? TensorView(buffer.data(), DType::fp32, {stored.elements()})
                         : TensorView(buffer.data(), DType::fp32, {stored.size(0), stored.size(1)});
  for (int64_t i = 0; i < stored.elements(); ++i)
    made.as<float>()[i] =
        static_cast<float>(factor * double{load_as_float(stored.data(), stored.dtype(), i)});
  return vector(made);
}

LinearWeight Residence::joined_blocks(const LinearWeight& stored) {
  if (stored.parts.size() == 1) return linear(stored);
  const DType type = dtype_.value_or(stored.parts.front().weight.dtype());
  device::Buffer& buffer = converted.emplace_back(stored.out() * stored.in() * size_of(type));
  const TensorView all(buffer.data(), type, {stored.out(), stored.in()});
  int64_t row = 0;
  for (const LinearWeight::Part& part : stored.parts) {
    PECIA_CHECK(!part.bias, "a bias of {} blocks of rows", stored.parts.size());
    const TensorView rows = all.slice_rows(row, part.weight.rows());
    convert(part.weight, rows, pool_);
    if (const auto index = first_not_finite(rows, 0, rows.elements(), pool_))
      refuse_value(part.weight, *index);
    row += part.weight.rows();
  }
  return {{{vector(all), TensorView()}}};
}

/// exp(A) is taken in fp32, as transformers does.
void Residence::recurrence(RecurrentWeights& weights) {
  const TensorView stored = weights.rate;
  device::Buffer& buffer = converted.emplace_back(stored.elements() * size_of(DType::fp32));
  weights.rate = TensorView(buffer.data(), DType::fp32, {stored.elements()});
  for (int64_t head = 0; head < stored.elements(); ++head)
    weights.rate.as<float>()[head] = -std::exp(load_as_float(stored.data(), stored.dtype(), head));
  for (TensorView* of : weights.vectors()) *of = wide(*of);
}

LinearWeight Residence::linear(const LinearWeight& stored) {
  LinearWeight weight = stored;
  for (LinearWeight::Part& part : weight.parts)
    part = is_code(part.weight.dtype())
               ? LinearWeight::Part{vector(part.weight), vector(part.bias), vector(part.scales),
                                    part.factor}
               : LinearWeight::Part{matrix(part.weight), vector(part.bias)};
  return weight;
}

LayerWeights Residence::layer(const LayerWeights& stored, const ModelConfig& config,
                              int64_t index) {
  LayerWeights layer = stored;
  for (TensorView* of : layer.norms()) *of = norm(*of);
  vector(layer.attention.sinks);
  layer.mixture.choice_bias = wide(layer.mixture.choice_bias);
  layer.mixture.expert_scales = wide(layer.mixture.expert_scales);
  layer.mixture.router_norm =
      wide(layer.mixture.router_norm, 1 / std::sqrt(static_cast<double>(config.hidden)));
  if (config.norms_values && config.has_keys(index))
    layer.attention.v_norm = ones(config.heads(index).dim);
  if (config.norms_without_weights(index))
    layer.attention.q_norm = layer.attention.k_norm = ones(config.heads(index).dim);
  if (layer.recurrent) recurrence(*layer.recurrent);
  // Rows that a file has by key head, or by head with its gate; others of blocks stay as they are.
  const bool joins = layer.recurrent || config.attention_gate;
  layer.for_each_matrix([&](MatrixKind, LinearWeight& matrix) {
    matrix = joins ? joined_blocks(matrix) : linear(matrix);
  });
  return layer;
}

/// Finds the tensor that contains the element by the element's address.
void Residence::refuse_value(const TensorView& stored, int64_t index) const {
  const int64_t width = stored.row_elements(), element_bytes = size_of(stored.dtype());
  const auto* element =
      static_cast<const std::byte*>(stored.row(index / width)) + index % width * element_bytes;
  for (const std::string& name : checkpoint_.names()) {
    const TensorView tensor = checkpoint_.tensor(name);
    const int64_t offset = element - static_cast<const std::byte*>(tensor.data());
    if (offset < 0 || offset >= tensor.elements() * element_bytes) continue;
    fail<InputError>(
        "{}: tensor '{}' holds {} at element {}, which {} cannot hold; choose another "
        "model.dtype, or a model whose weights are finite",
        checkpoint_.file_of(name).string(), name, load_as_float(element, stored.dtype(), 0),
        offset / element_bytes, name_of(*dtype_));
  }
  fail<InputError>(
      "a matrix of an expert holds {}, which {} cannot hold; choose another model.dtype",
      load_as_float(element, stored.dtype(), 0), name_of(*dtype_));
}

}  // namespace pecia::model
