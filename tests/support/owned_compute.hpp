#pragma once
/// Where tests compute.

#include "lib/context/compute.hpp"

namespace pecia::test {

/// A Compute with all that it names.
struct OwnedCompute {
  OwnedCompute(std::unique_ptr<device::Device> on, std::unique_ptr<kernels::Backend> with)
      : device(std::move(on)), stream(device->make_stream()), backend(std::move(with)) {}

  operator context::Compute() { return {*device, *stream, *backend, recorder}; }

  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<kernels::Backend> backend;
  report::Recorder recorder;
};

struct CpuCompute : OwnedCompute {
  explicit CpuCompute(int threads = 1,
                      std::unique_ptr<kernels::Backend> with = kernels::make_cpu_backend())
      : OwnedCompute(device::make_host_device(threads), std::move(with)) {}
};

}  // namespace pecia::test
