// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/cuda_device.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/base/device/cuda/cuda_check.hpp"
#include "lib/base/device/cuda/cuda_stream.hpp"
#include "lib/base/device/cuda/probe.hpp"

namespace pecia::device {
namespace {

class CudaEvent : public Event {
 public:
  CudaEvent() { PECIA_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  void record(Stream& stream) override {
    PECIA_CUDA_CHECK(cudaEventRecord(event_, native(stream)));
    stream_ = &stream;
  }
  void make_wait(Stream& stream) override {
    PECIA_CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_));
  }
  bool done() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    PECIA_CUDA_CHECK(state);
    return true;
  }
  void synchronize() override {
    while (!done()) stream_->poll();
  }
  double seconds_since(const Event& earlier) const override {
    const auto* const other = dynamic_cast<const CudaEvent*>(&earlier);
    PECIA_CHECK(other != nullptr, "an event of another device");
    float milliseconds = 0;
    PECIA_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, other->event_, event_));
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
  Stream* stream_ = nullptr;  ///< of the mark
};

/// A function of the driver; null if the driver lacks it. `since`: the version of CUDA that it came
/// with. CUDA before 12.5 knows only the version that belongs to itself.
void* driver_function(const char* name, [[maybe_unused]] unsigned since) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t asked =
      cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault, &found);
#else
  const cudaError_t asked = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  if (asked == cudaSuccess) return found == cudaDriverEntryPointSuccess ? function : nullptr;
  cudaGetLastError();
  return nullptr;
}

/// Whether the driver hands a GPU's memory to network devices without a module of its own.
bool has_dma_buf(int index) {
  constexpr int dma_buf_supported = 124;  // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, CUDA 11.7
  constexpr unsigned since = 11070;
  int value = 0;
  void* const function = driver_function("cuDeviceGetAttribute", since);
  return function != nullptr &&
         reinterpret_cast<int (*)(int*, int, int)>(function)(&value, dma_buf_supported, index) ==
             0 &&
         value != 0;
}

/// The UUID as nvidia-smi spells it. An instance of a GPU (MIG) has its own, which only the driver
/// tells. If it does not, this is the UUID of the whole GPU, and two instances count as one GPU.
std::string uuid_of(int index, const cudaUUID_t& whole) {
  cudaUUID_t uuid = whole, own;
  constexpr unsigned since = 11040;  // CUDA 11.4, the first that knows instances
  if (void* const function = driver_function("cuDeviceGetUuid", since))
    if (reinterpret_cast<int (*)(cudaUUID_t*, int)>(function)(&own, index) == 0) uuid = own;
  const bool instance = std::memcmp(whole.bytes, uuid.bytes, sizeof uuid.bytes) != 0;
  std::string text = instance ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

/// Stands in the device's list of streams.
class ListedStream : public CudaStream {
 public:
  explicit ListedStream(std::set<CudaStream*>& list) : list_(list) { list_.insert(this); }
  ~ListedStream() override { list_.erase(this); }

 private:
  std::set<CudaStream*>& list_;
};

/// Each call makes its GPU the calling thread's current one: threads begin with GPU 0.
class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    int count = 0;
    PECIA_CUDA_CHECK(cudaGetDeviceCount(&count));
    if (index < 0 || index >= count)
      fail<InputError>("there is no GPU {}: {} are visible, numbered from 0", index, count);
    make_current();
    cudaDeviceProp properties;
    PECIA_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    int driver = 0;
    PECIA_CUDA_CHECK(cudaDriverGetVersion(&driver));
    info_ = {properties.name,
             properties.major * 10 + properties.minor,
             properties.multiProcessorCount,
             fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10),
             fmt::format("{:04x}:{:02x}:{:02x}", properties.pciDomainID, properties.pciBusID,
                         properties.pciDeviceID),
             uuid_of(index, properties.uuid),
             static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
    cudaFuncAttributes attributes;
    PECIA_CUDA_CHECK(cudaFuncGetAttributes(&attributes, probe_kernel()));
  }

  const DeviceInfo& info() const override { return info_; }
  MemoryInfo memory() const override {
    make_current();
    size_t free_bytes = 0, total_bytes = 0;
    PECIA_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
  }

  std::unique_ptr<Stream> make_stream() override {
    make_current();
    return std::make_unique<ListedStream>(streams_);
  }
  std::unique_ptr<Event> make_event() override {
    make_current();
    return std::make_unique<CudaEvent>();
  }

  void copy(void* to, const void* from, int64_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    CudaStream& on = cuda_stream(stream);
    submit_copy(
        on, to, from,
        [=, &on] {
          PECIA_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on.get()));
        },
        bytes);
  }
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                 int64_t row_bytes, int64_t rows, Stream& stream) override {
    if (row_bytes == 0 || rows == 0) return;
    CudaStream& on = cuda_stream(stream);
    submit_copy(
        on, to, from,
        [=, &on] {
          PECIA_CUDA_CHECK(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows,
                                             cudaMemcpyDefault, on.get()));
        },
        to_pitch, from_pitch, row_bytes, rows);
  }
  void zero(void* data, int64_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    CudaStream& on = cuda_stream(stream);
    on.submit([=, &on] { PECIA_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, on.get())); }, data,
              bytes);
  }

  std::byte* allocate(Memory memory, int64_t bytes) override {
    make_current();
    void* data = nullptr;
    cudaError_t error = cudaErrorInvalidValue;
    switch (memory) {
      case Memory::host:
        return host_->allocate(memory, bytes);
      case Memory::pinned:
        error = cudaMallocHost(&data, bytes);
        break;
      case Memory::device:
        error = cudaMalloc(&data, bytes);
        break;
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      const MemoryInfo now = this->memory();
      fail<SystemError>(
          "{}: {} bytes of {} memory could not be allocated; {} of {} on the GPU are "
          "free. {}",
          info_.name, bytes, memory == Memory::pinned ? "pinned host" : "GPU", now.free_bytes,
          now.total_bytes, remedy(error));
    }
    PECIA_CUDA_CHECK(error);
    return static_cast<std::byte*>(data);
  }
  void free(Memory memory, std::byte* data) noexcept override {
    for (CudaStream* const stream : streams_) end_segment(*stream);
    // Both fail only when the context is lost, and its memory with it.
    if (memory == Memory::host)
      host_->free(memory, data);
    else if (memory == Memory::pinned)
      cudaFreeHost(data);
    else
      cudaFree(data);
  }

 private:
  void make_current() const { PECIA_CUDA_CHECK(cudaSetDevice(index_)); }

  /// In a step pageable memory is read and written now, not at the end of the segment.
  template <typename... Parts>
  static void submit_copy(CudaStream& on, const void* to, const void* from,
                          std::function<void()> work, const Parts&... parts) {
    if (on.in_step() && (is_pageable(to) || is_pageable(from))) {
      on.end_segment();
      return work();
    }
    on.submit(std::move(work), to, from, parts...);
  }
  static void end_segment(CudaStream& stream) noexcept {
    try {
      stream.end_segment();
    } catch (const Error&) {
      // The context is lost, as the next call that may throw will say.
    }
  }
  static bool is_pageable(const void* data) {
    cudaPointerAttributes attributes;
    PECIA_CUDA_CHECK(cudaPointerGetAttributes(&attributes, data));
    return attributes.type == cudaMemoryTypeUnregistered;
  }

  int index_;
  std::set<CudaStream*> streams_;
  DeviceInfo info_;
  std::unique_ptr<Device> host_ = make_host_device(1);
};

}  // namespace

bool has_cuda() {
  return true;
}

int num_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or none that is new enough: make_cuda_device says which
  return 0;
}

std::string cuda_toolkit() {
  return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

CudaAccess cuda_access(int index) {
  int count = 0;
  PECIA_CUDA_CHECK(cudaGetDeviceCount(&count));
  CudaAccess access;
  for (int other = 0; other < count; ++other) {
    int reaches = 1;
    if (other != index) PECIA_CUDA_CHECK(cudaDeviceCanAccessPeer(&reaches, index, other));
    access.peers.push_back(reaches != 0);
  }
  access.by_network = has_dma_buf(index);
  return access;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

bool is_cuda_device(const Device& device) {
  return dynamic_cast<const CudaDevice*>(&device) != nullptr;
}

}  // namespace pecia::device
