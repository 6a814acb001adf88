// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/cuda/cuda_stream.hpp"

#include <memory>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/device/cuda/cuda_check.hpp"

namespace pecia::device {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Capture = std::unique_ptr<CUgraph_st, DestroyGraph>;

Capture capture(cudaStream_t stream, const Commands& work) {
  cudaGraph_t graph = nullptr;
  PECIA_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    work.enqueue();
  } catch (const Error& error) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    // A library that may not be captured says that its call failed, as for a lost device.
    if (is_sticky(cudaGetLastError())) throw;
    fail<SystemError>("work could not be captured as a graph: {}", error.what());
  }
  PECIA_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  return Capture(graph);
}

}  // namespace

CudaStream::CudaStream() {
  PECIA_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  int index = 0, major = 0;
  PECIA_CUDA_CHECK(cudaGetDevice(&index));
  PECIA_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  launches_early_ = major >= 9 && is_switched_on("PECIA_CUDA_EARLY", "early launches");
}

CudaStream::~CudaStream() {
  // Both fail only when the context is lost, and then there is neither graph nor stream.
  for (cudaGraphExec_t graph : graphs_)
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  cudaStreamDestroy(stream_);
}

void CudaStream::synchronize() {
  end_segment();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) PECIA_CUDA_CHECK(state);
    poll();
  }
}

/// The graph of before takes the new arguments where only those have changed; making another one
/// costs several times as much.
void CudaStream::make_graph(size_t slot, const Commands& work) {
  if (slot >= graphs_.size()) graphs_.resize(slot + 1, nullptr);
  cudaGraphExec_t& graph = graphs_[slot];
  const Capture captured = capture(stream_, work);
  cudaGraphExecUpdateResultInfo update;
  if (graph != nullptr && cudaGraphExecUpdate(graph, captured.get(), &update) != cudaSuccess) {
    cudaGetLastError();  // the work has another form
    PECIA_CUDA_CHECK(cudaGraphExecDestroy(std::exchange(graph, nullptr)));
  }
  if (graph == nullptr) PECIA_CUDA_CHECK(cudaGraphInstantiate(&graph, captured.get(), 0));
}

void CudaStream::launch_graph(size_t slot) {
  PECIA_CUDA_CHECK(cudaGraphLaunch(graphs_[slot], stream_));
}

void CudaStream::drop_graph(size_t slot) {
  if (slot >= graphs_.size() || graphs_[slot] == nullptr) return;
  PECIA_CUDA_CHECK(cudaGraphExecDestroy(std::exchange(graphs_[slot], nullptr)));
}

CudaStream& cuda_stream(const Stream& stream) {
  const auto* const of_cuda = dynamic_cast<const CudaStream*>(&stream);
  PECIA_CHECK(of_cuda != nullptr, "a stream of the CPU was given to the CUDA backend");
  return const_cast<CudaStream&>(*of_cuda);
}

cudaStream_t native(const Stream& stream) {
  CudaStream& of_cuda = cuda_stream(stream);
  of_cuda.end_segment();
  return of_cuda.get();
}

}  // namespace pecia::device
