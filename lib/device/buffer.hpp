#pragma once
/// Owner of a block of memory aligned to cache lines. Not initialised.

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "lib/core/error.hpp"
#include "lib/core/tensor_view.hpp"

namespace pecia::device {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);

  int64_t bytes() const { return bytes_; }
  void* data() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

  /// Makes room for `bytes`; what was there is lost when it has to grow. Never shrinks.
  void reserve(int64_t bytes);

  /// A dense tensor at the beginning, making room for it first.
  TensorView tensor(DType dtype, std::initializer_list<int64_t> shape);

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

}  // namespace pecia::device
