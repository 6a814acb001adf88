#include "kernels/cuda/cuda_stream.hpp"

#include <utility>

#include "kernels/cuda/cuda_check.hpp"
#include "lib/core/error.hpp"

namespace pecia::kernels::cuda {

CudaStream::CudaStream() {
  PECIA_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  // Both fail only when the context is lost, and then there is neither graph nor stream.
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  cudaStreamDestroy(stream_);
}

void CudaStream::synchronize() {
  enqueue_held();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) PECIA_CUDA_CHECK(state);
    poll();
  }
}

void CudaStream::begin_step() {
  PECIA_CHECK(!holds_, "a step within a step");
  holds_ = true;
}

void CudaStream::end_step() {
  if (!holds_) return;
  holds_ = false;
  if (held_.empty()) return;
  if (graph_ == nullptr || !held_.same_as(of_graph_)) make_graph_of_held();
  PECIA_CUDA_CHECK(cudaGraphLaunch(graph_, stream_));
  held_.clear();
}

void CudaStream::drop_step() {
  holds_ = false;
  held_.clear();
}

void CudaStream::enqueue_held() {
  if (!holds_) return;
  holds_ = false;
  held_.enqueue();
  held_.clear();
}

/// The graph of before takes the new arguments where only those have changed; making another one
/// costs several times as much.
void CudaStream::make_graph_of_held() {
  cudaGraph_t graph = nullptr;
  PECIA_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  try {
    held_.enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  PECIA_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExecUpdateResultInfo update;
  if (graph_ != nullptr && cudaGraphExecUpdate(graph_, graph, &update) != cudaSuccess) {
    cudaGetLastError();  // the work has another form
    PECIA_CUDA_CHECK(cudaGraphExecDestroy(std::exchange(graph_, nullptr)));
  }
  if (graph_ == nullptr) PECIA_CUDA_CHECK(cudaGraphInstantiate(&graph_, graph, 0));
  PECIA_CUDA_CHECK(cudaGraphDestroy(graph));
  std::swap(of_graph_, held_);
}

CudaStream& cuda_stream(const device::Stream& stream) {
  const auto* const of_cuda = dynamic_cast<const CudaStream*>(&stream);
  PECIA_CHECK(of_cuda != nullptr, "a stream of the CPU was given to the CUDA backend");
  return const_cast<CudaStream&>(*of_cuda);
}

cudaStream_t native(const device::Stream& stream) {
  CudaStream& of_cuda = cuda_stream(stream);
  of_cuda.enqueue_held();
  return of_cuda.get();
}

}  // namespace pecia::kernels::cuda
