#include "kernels/cuda/cuda_stream.hpp"

#include "kernels/cuda/cuda_check.hpp"
#include "lib/core/error.hpp"

namespace pecia::kernels::cuda {

CudaStream::CudaStream() {
  PECIA_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  cudaStreamDestroy(stream_);  // fails only when the context is lost, and then there is no stream
}

void CudaStream::synchronize() {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) PECIA_CUDA_CHECK(state);
    poll();
  }
}

cudaStream_t native(const device::Stream& stream) {
  const auto* const of_cuda = dynamic_cast<const CudaStream*>(&stream);
  PECIA_CHECK(of_cuda != nullptr, "a stream of the CPU was given to the CUDA backend");
  return of_cuda->get();
}

}  // namespace pecia::kernels::cuda
