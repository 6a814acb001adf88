// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/weight_loader.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {
namespace {

std::vector<int64_t> shape_of(const TensorView& tensor) {
  std::vector<int64_t> shape;
  for (int axis = 0; axis < tensor.rank(); ++axis) shape.push_back(tensor.size(axis));
  return shape;
}

constexpr std::string_view model_prefix = "model.", head_prefix = "lm_head.";

}  // namespace

WeightLoader::WeightLoader(const io::Checkpoint& checkpoint)
    : checkpoint_(checkpoint), model_(model_prefix), head_(head_prefix) {
  if (checkpoint.contains("embed_tokens.weight")) {  // a model that was saved without its head
    model_.clear();
    return;
  }
  for (const std::string& name : checkpoint.names()) {
    if (name.starts_with("language_model.model.")) {  // as transformers 4 saved them
      model_ = "language_model.model.";
      head_ = "language_model.lm_head.";
      return;
    }
    if (name.starts_with("backbone.")) {  // Nemotron-H
      model_ = "backbone.";
      return;
    }
    if (name.starts_with("model.language_model.")) {
      model_ = "model.language_model.";
      return;
    }
  }
}

std::string WeightLoader::stored_name(const std::string& name) const {
  if (name.starts_with(model_prefix)) return model_ + name.substr(model_prefix.size());
  if (name.starts_with(head_prefix)) return head_ + name.substr(head_prefix.size());
  return name;
}

std::string WeightLoader::folder() const {
  const std::vector<std::string> names = checkpoint_.names();
  return names.empty() ? "the checkpoint"
                       : checkpoint_.file_of(names.front()).parent_path().string();
}

TensorView WeightLoader::of_shape(const std::string& asked, std::initializer_list<int64_t> shape) {
  const std::string name = stored_name(asked);
  const std::vector<int64_t> expected = shape;
  if (!checkpoint_.contains(name))
    fail<InputError>(
        "{}: tensor '{}' is missing; config.json asks for it with shape [{}]. Download "
        "every shard again, or correct config.json",
        folder(), name, fmt::join(expected, ", "));
  const TensorView tensor = checkpoint_.tensor(name);
  const std::vector<int64_t> found = shape_of(tensor);
  if (found != expected)
    fail<InputError>(
        "{}: tensor '{}' has shape [{}], but config.json asks for [{}]; the two belong "
        "to different models",
        checkpoint_.file_of(name).string(), name, fmt::join(found, ", "),
        fmt::join(expected, ", "));
  used.insert(name);
  return tensor;
}

TensorView WeightLoader::tensor(const std::string& name, std::initializer_list<int64_t> shape) {
  const TensorView tensor = of_shape(name, shape);
  if (!is_float(tensor.dtype()))
    fail<InputError>(
        "{}: tensor '{}' is of type {}, but by config.json weights must be fp32, bf16 or fp16; "
        "the two belong to different models",
        file_of(name), stored_name(name), name_of(tensor.dtype()));
  return tensor;
}

TensorView WeightLoader::typed(const std::string& name, DType type,
                               std::initializer_list<int64_t> shape) {
  const TensorView tensor = of_shape(name, shape);
  if (tensor.dtype() != type)
    fail<InputError>(
        "{}: tensor '{}' is of type {}, but by quantization_config of config.json it must be {}",
        file_of(name), stored_name(name), name_of(tensor.dtype()), name_of(type));
  return tensor;
}

bool WeightLoader::has_numbers(const std::string& name) const {
  return contains(name) && is_float(checkpoint_.tensor(stored_name(name)).dtype());
}

bool WeightLoader::has_shape(const std::string& name, std::initializer_list<int64_t> shape) const {
  return contains(name) &&
         shape_of(checkpoint_.tensor(stored_name(name))) == std::vector<int64_t>(shape);
}

void WeightLoader::ignore(const std::string& name) {
  if (contains(name)) used.insert(stored_name(name));
}

void WeightLoader::ignore_layers(int64_t first, int64_t count) {
  for (int64_t layer = first; layer < first + count; ++layer)
    ignore_prefix(stored_name(layer_name(layer, "")));
}

void WeightLoader::ignore_prefix(std::string_view prefix) {
  if (prefix.empty()) return;
  for (const std::string& name : checkpoint_.names())
    if (name.starts_with(prefix)) ignored_.insert(name);
}

TensorView WeightLoader::mxfp4_codes(const std::string& name,
                                     std::initializer_list<int64_t> shape) {
  const TensorView tensor = of_shape(name, shape);
  if (tensor.dtype() != DType::uint8)
    fail<InputError>("{}: tensor '{}' is of type {}, but codes of MXFP4 must be uint8",
                     file_of(name), stored_name(name), name_of(tensor.dtype()));
  return tensor;
}

TensorView WeightLoader::mxfp4_scales_of(const std::string& name,
                                         std::initializer_list<int64_t> shape) {
  const TensorView scales = mxfp4_codes(name, shape);
  mxfp4_scales.insert(stored_name(name));
  return scales;
}

TensorView WeightLoader::matrix(const std::string& name, int64_t rows, int64_t columns) {
  return tensor(name, {rows, columns});
}

TensorView WeightLoader::vector(const std::string& name, int64_t size) {
  return tensor(name, {size});
}

void WeightLoader::refuse_left_over(int64_t layers) const {
  std::vector<std::string> left_over = checkpoint_.names();
  const bool has_other_parts = model_.find("language_model") != std::string::npos;
  std::erase_if(left_over, [&](const std::string& name) {
    return used.contains(name) || ignored_.contains(name) || is_harmless(name) ||
           (has_other_parts && is_of_images(name));
  });
  if (left_over.empty()) return;
  const std::string& name = left_over.front();
  fail<InputError>(
      "{}: tensor '{}' (shape [{}]) has no place in the model that config.json "
      "describes ({} layers), and {} left over. Check that both are of the same "
      "model",
      checkpoint_.file_of(name).string(), name, fmt::join(shape_of(checkpoint_.tensor(name)), ", "),
      layers, left_over.size() == 1 ? "is the only one" : fmt::format("{} are", left_over.size()));
}

}  // namespace pecia::model
