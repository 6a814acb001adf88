// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A place with memory and streams: the host, or one GPU. Kernels belong to a backend
/// (kernels/api/backend.hpp), not to a device. This header needs no CUDA headers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lib/base/device/blocks.hpp"
#include "lib/base/device/event.hpp"
#include "lib/base/device/stream.hpp"

namespace pecia::device {

enum class Memory {
  host,    ///< pageable host memory
  pinned,  ///< locked host memory: copies to and from a device run while the host goes on
  device   ///< memory that kernels work on; on the host's device the same as `host`
};

struct DeviceInfo {
  std::string name;          ///< as the vendor spells it
  int compute_capability;    ///< 90 for 9.0; 0 on the host
  int multiprocessors;       ///< 1 on the host
  std::string driver;        ///< version that the driver supports; "" on the host
  std::string address;       ///< PCI address; instances of one GPU (MIG) share it; "" on the host
  std::string uuid = {};     ///< UUID of the GPU or of the instance; "" on the host
  int64_t shared_bytes = 0;  ///< shared memory that a block may have; 0 on the host

  bool is_gpu() const { return compute_capability > 0; }
};

struct MemoryInfo {
  int64_t free_bytes, total_bytes;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  /// The device's memory as it reports it now; other programs change these figures.
  virtual MemoryInfo memory() const = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Copies in any direction, after the work that `stream` holds. With pinned or device memory on
  /// both sides the host does not wait; then neither side may be freed or changed before the stream
  /// has done the copy. Pageable memory may make the host wait. The ranges do not overlap.
  virtual void copy(void* to, const void* from, int64_t bytes, Stream& stream) = 0;

  /// Copies `rows` rows of `row_bytes`. Rows begin `to_pitch` and `from_pitch` bytes apart.
  virtual void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                         int64_t row_bytes, int64_t rows, Stream& stream) = 0;

  /// Zeroes device memory after the work that `stream` holds.
  virtual void zero(void* data, int64_t bytes, Stream& stream) = 0;

  /// Called by Buffer, which alone owns blocks. Throws SystemError with the bytes wanted and the
  /// bytes free.
  virtual std::byte* allocate(Memory memory, int64_t bytes) = 0;
  /// Waits for work that may still use the block.
  virtual void free(Memory memory, std::byte* data) noexcept = 0;

  /// The blocks of device memory.
  Blocks& blocks() { return blocks_; }

 private:
  Blocks blocks_;
};

/// The host as a device: copies are done when the call returns, and all kinds of memory are the
/// same.
std::unique_ptr<Device> make_host_device(int num_threads, std::vector<int> cpus = {});

}  // namespace pecia::device
