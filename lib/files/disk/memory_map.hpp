// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A writable map of memory that the processes of a host share (MemoryFile).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace pecia::io {

class MemoryMap {
 public:
  MemoryMap() = default;
  /// Maps the first `bytes` of the file at MemoryFile::path(), in large pages where the system has
  /// them for shared memory. Throws SystemError.
  MemoryMap(const std::filesystem::path& path, int64_t bytes);
  ~MemoryMap();
  MemoryMap(MemoryMap&& other) noexcept;
  MemoryMap& operator=(MemoryMap&& other) noexcept;

  /// Valid while this object lives.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace pecia::io
