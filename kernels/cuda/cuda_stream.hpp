#pragma once
#include <cuda_runtime_api.h>

#include "lib/device/stream.hpp"

namespace pecia::kernels::cuda {

/// Owns a CUDA stream that does not wait for the default stream.
class CudaStream : public device::Stream {
 public:
  /// Of the device that is current.
  CudaStream();
  ~CudaStream() override;

  cudaStream_t get() const { return stream_; }
  void synchronize() override;

 private:
  cudaStream_t stream_ = nullptr;
};

/// Throws InvalidArgument for a stream of the CPU.
cudaStream_t native(const device::Stream& stream);

}  // namespace pecia::kernels::cuda
