// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where tests compute.

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/device_clock.hpp"

namespace pecia::test {

/// A Compute with all that it names.
struct OwnedCompute {
  OwnedCompute(std::unique_ptr<device::Device> on, std::unique_ptr<kernels::Backend> with)
      : device(std::move(on)), stream(device->make_stream()), backend(std::move(with)) {}

  /// For devices whose work is done later.
  void time_by_device() {
    recorder.time_by(std::make_unique<attention::DeviceClock>(
        *device, *stream, [this] { return recorder.now_ns(); }));
  }

  operator attention::Compute() { return {*device, *stream, *backend, recorder}; }

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
