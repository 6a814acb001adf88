// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Takes tensors from a checkpoint and checks their shapes against the configuration.

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "lib/files/checkpoint/safetensors.hpp"

namespace pecia::model {

/// Returns views of the checkpoint's mapped files. Tensors are asked for as "model.…" and
/// "lm_head.…". A model that has other parts beside the language model stores them under longer
/// names; its other parts are then no left-overs. A model for embedding may be saved by itself, without
/// "model." and without a head.
class WeightLoader {
 public:
  /// `checkpoint` must outlive the loader.
  explicit WeightLoader(const io::Checkpoint& checkpoint);

  /// The file that holds the tensor, for messages.
  std::string file_of(const std::string& name) const {
    return checkpoint_.file_of(stored_name(name)).string();
  }
  bool contains(const std::string& name) const { return checkpoint_.contains(stored_name(name)); }

  TensorView matrix(const std::string& name, int64_t rows, int64_t columns);
  TensorView vector(const std::string& name, int64_t size);
  TensorView tensor(const std::string& name, std::initializer_list<int64_t> shape);
  /// A tensor of another type than those of numbers.
  TensorView typed(const std::string& name, DType type, std::initializer_list<int64_t> shape);
  /// Whether there are numbers under this name, and not codes or nothing.
  bool has_numbers(const std::string& name) const;
  bool has_shape(const std::string& name, std::initializer_list<int64_t> shape) const;
  /// The tensor is no left-over if it is there.
  void ignore(const std::string& name);
  /// Nor are the tensors of `count` layers, from layer `first` on.
  void ignore_layers(int64_t first, int64_t count);
  /// Nor are tensors whose stored names begin so; with an empty prefix none.
  void ignore_prefix(std::string_view prefix);
  /// Codes of mxfp4, or their scales (codes.hpp).
  TensorView mxfp4_codes(const std::string& name, std::initializer_list<int64_t> shape);
  TensorView mxfp4_scales_of(const std::string& name, std::initializer_list<int64_t> shape);

  /// Throws InputError if the checkpoint holds a tensor that was not requested, except harmless
  /// ones.
  void refuse_left_over(int64_t layers) const;

  /// The checkpoint's folder, for messages.
  std::string folder() const;

  std::set<std::string> used;
  std::set<std::string> mxfp4_scales;  ///< of `used`

 private:
  std::string stored_name(const std::string& name) const;
  TensorView of_shape(const std::string& asked, std::initializer_list<int64_t> shape);

  const io::Checkpoint& checkpoint_;
  std::set<std::string> ignored_;
  std::string model_, head_;  ///< what names begin with in place of "model." and "lm_head."
};

}  // namespace pecia::model
