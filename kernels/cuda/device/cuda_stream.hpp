// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cuda_runtime_api.h>

#include "lib/device/graph_stream.hpp"

namespace pecia::kernels::cuda {

/// Owns a CUDA stream that does not wait for the default stream, and the graphs of its last step.
class CudaStream : public device::GraphStream {
 public:
  /// Makes a stream of the device that is current.
  CudaStream();
  ~CudaStream() override;

  cudaStream_t get() const { return stream_; }
  void synchronize() override;

 private:
  void make_graph(size_t index, const device::Commands& work) override;
  void launch_graph(size_t index) override;
  void keep_graphs(size_t count) override;

  cudaStream_t stream_ = nullptr;
  std::vector<cudaGraphExec_t> graphs_;  ///< null for a graph that could not be made
};

/// Throws InvalidArgument for a stream of the CPU.
CudaStream& cuda_stream(const device::Stream& stream);

/// Returns the CUDA stream, to enqueue something there at once. What is held back is enqueued
/// first.
cudaStream_t native(const device::Stream& stream);

}  // namespace pecia::kernels::cuda
