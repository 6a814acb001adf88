// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Takes tensors from a checkpoint and checks their shapes against the configuration.

#include <initializer_list>
#include <set>
#include <string>

#include "lib/io/safetensors.hpp"

namespace pecia::model {

/// Returns views of the checkpoint's mapped files.
class WeightLoader {
 public:
  /// `checkpoint` must outlive the loader.
  explicit WeightLoader(const io::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  TensorView matrix(const std::string& name, int64_t rows, int64_t columns);
  TensorView vector(const std::string& name, int64_t size);

  /// Throws InputError if the checkpoint holds a tensor that was not requested, except harmless
  /// ones.
  void refuse_left_over(int64_t layers) const;

  /// The checkpoint's folder, for messages.
  std::string folder() const;

  std::set<std::string> used;

 private:
  TensorView stored(const std::string& name, std::initializer_list<int64_t> shape);

  const io::Checkpoint& checkpoint_;
};

}  // namespace pecia::model
