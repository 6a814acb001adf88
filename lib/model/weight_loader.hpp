#pragma once
/// Takes tensors out of a checkpoint, checked against the shapes that the configuration asks for.

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/device/buffer.hpp"
#include "lib/io/safetensors.hpp"

namespace pecia::model {

/// The views it gives are of the checkpoint's mapped files, or of buffers in `converted`.
class WeightLoader {
 public:
  /// `checkpoint` must outlive the loader. Matrices are converted to `dtype` unless stored so.
  WeightLoader(const io::Checkpoint& checkpoint, std::optional<DType> dtype);

  TensorView matrix(const std::string& name, int64_t rows, int64_t columns);
  TensorView vector(const std::string& name, int64_t size);

  /// InputError if the checkpoint holds a tensor that was not asked for, harmless ones excepted.
  void refuse_left_over(int64_t layers) const;

  /// The checkpoint's folder, for messages.
  std::string folder() const;

  std::set<std::string> used;
  std::vector<device::Buffer> converted;
  int64_t resident_bytes = 0;
  int64_t converted_bytes = 0;

 private:
  TensorView stored(const std::string& name, std::initializer_list<int64_t> shape);
  TensorView convert_checked(const std::string& name, const TensorView& stored);

  const io::Checkpoint& checkpoint_;
  std::optional<DType> dtype_;
};

}  // namespace pecia::model
