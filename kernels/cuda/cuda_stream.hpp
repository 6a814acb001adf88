#pragma once
#include <cuda_runtime_api.h>

#include "lib/device/commands.hpp"
#include "lib/device/stream.hpp"

namespace pecia::kernels::cuda {

/// Owns a CUDA stream that does not wait for the default stream, and the graph of its last step.
class CudaStream : public device::Stream {
 public:
  /// Of the device that is current.
  CudaStream();
  ~CudaStream() override;

  cudaStream_t get() const { return stream_; }
  void synchronize() override;

  void begin_step() override;
  void end_step() override;
  void drop_step() override;

  bool holds() const { return holds_; }
  /// Does `work`, which enqueues what follows from `parts` alone: now, or at the end of the step.
  template <typename... Parts>
  void submit(std::function<void()> work, const Parts&... parts) {
    if (holds_)
      held_.add(std::move(work), parts...);
    else
      work();
  }
  /// Enqueues what is held back, one by one, and holds back no more of this step: before the host
  /// waits, or memory is freed.
  void enqueue_held();

 private:
  void make_graph_of_held();

  cudaStream_t stream_ = nullptr;
  bool holds_ = false;
  device::Commands held_;
  device::Commands of_graph_;  ///< what graph_ does
  cudaGraphExec_t graph_ = nullptr;
};

/// Throws InvalidArgument for a stream of the CPU.
CudaStream& cuda_stream(const device::Stream& stream);

/// To enqueue something there at once, after what is held back.
cudaStream_t native(const device::Stream& stream);

}  // namespace pecia::kernels::cuda
