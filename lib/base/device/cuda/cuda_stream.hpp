// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cuda_runtime_api.h>

#include "lib/base/device/graph_stream.hpp"

namespace pecia::device {

/// Owns a CUDA stream that does not wait for the default stream, and the graphs of its steps.
class CudaStream : public GraphStream {
 public:
  /// Makes a stream of the device that is current.
  CudaStream();
  ~CudaStream() override;

  cudaStream_t get() const { return stream_; }
  /// Tells whether the device can begin a kernel before the one before it has ended.
  bool launches_early() const { return launches_early_; }
  void synchronize() override;

 private:
  void make_graph(size_t slot, const Commands& work) override;
  void launch_graph(size_t slot) override;
  void drop_graph(size_t slot) override;

  cudaStream_t stream_ = nullptr;
  bool launches_early_ = false;
  std::vector<cudaGraphExec_t> graphs_;  ///< by slot; null in a slot without a graph
};

/// Throws InvalidArgument for a stream of the CPU.
CudaStream& cuda_stream(const Stream& stream);

/// Returns the CUDA stream, to enqueue something there at once. What is held back is enqueued
/// first.
cudaStream_t native(const Stream& stream);

}  // namespace pecia::device
