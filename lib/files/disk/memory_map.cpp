// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/memory_map.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/file.hpp"

namespace pecia::io {

MemoryMap::MemoryMap(const std::filesystem::path& path, int64_t bytes) {
  if (bytes == 0) return;
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0)
    fail<SystemError>("{}: shared memory of another process cannot be opened: {}", path.string(),
                      errno_text(errno));
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (data == MAP_FAILED)
    fail<SystemError>("{}: {} bytes of shared memory cannot be mapped: {}", path.string(), bytes,
                      errno_text(error));
  ::madvise(data, bytes, MADV_HUGEPAGE);  // where it is refused, pages stay small
  bytes_ = {static_cast<std::byte*>(data), static_cast<size_t>(bytes)};
}

MemoryMap::~MemoryMap() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

MemoryMap::MemoryMap(MemoryMap&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace pecia::io
