// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A place with memory and streams: the host, or one GPU. It says nothing about kernels, which are
/// a backend's (kernels/api/backend.hpp), and needs no CUDA headers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lib/device/blocks.hpp"
#include "lib/device/event.hpp"
#include "lib/device/stream.hpp"

namespace pecia::device {

enum class Memory {
  host,    ///< pageable
  pinned,  ///< the host's, locked: copies to and from a device run beside the host
  device   ///< where kernels work; on the host's device the same as `host`
};

struct DeviceInfo {
  std::string name;        ///< as the vendor spells it
  int compute_capability;  ///< 90 for 9.0; 0 on the host
  int multiprocessors;     ///< 1 on the host
  std::string driver;      ///< version the driver speaks, "" on the host
  std::string address;     ///< on the PCI bus: one GPU of a server has one; "" on the host

  bool is_gpu() const { return compute_capability > 0; }
};

struct MemoryInfo {
  int64_t free_bytes, total_bytes;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  /// As the device reports it now; other programs change it.
  virtual MemoryInfo memory() const = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Copies in any direction after what `stream` holds. With pinned or device memory on both sides
  /// the host does not wait, and neither side may be freed or changed before the stream is there;
  /// pageable memory may make it wait. The ranges do not overlap.
  virtual void copy(void* to, const void* from, int64_t bytes, Stream& stream) = 0;

  /// `rows` rows of `row_bytes`, their beginnings `to_pitch` and `from_pitch` bytes apart.
  virtual void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                         int64_t row_bytes, int64_t rows, Stream& stream) = 0;

  /// Zeroes device memory after what `stream` holds.
  virtual void zero(void* data, int64_t bytes, Stream& stream) = 0;

  /// For Buffer, the only owner. Throws SystemError with the bytes wanted and the bytes free.
  virtual std::byte* allocate(Memory memory, int64_t bytes) = 0;
  /// Waits for work that may still use the block.
  virtual void free(Memory memory, std::byte* data) noexcept = 0;

  /// Of device memory.
  Blocks& blocks() { return blocks_; }

 private:
  Blocks blocks_;
};

/// The host as a device: copies are done on return, all kinds of memory are the same.
std::unique_ptr<Device> make_host_device(int num_threads, std::vector<int> cpus = {});

}  // namespace pecia::device
