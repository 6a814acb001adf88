// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/memory_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/file.hpp"

namespace pecia::io {

MemoryFile::MemoryFile(int64_t bytes) : descriptor_(::memfd_create("pecia", MFD_CLOEXEC)) {
  if (descriptor_ < 0) fail<SystemError>("a file in memory cannot be made: {}", errno_text(errno));
  if (::ftruncate(descriptor_, bytes) == 0) return;
  const int error = errno;
  ::close(descriptor_);
  fail<SystemError>("a file of {} bytes in memory cannot be made: {}", bytes, errno_text(error));
}

MemoryFile::~MemoryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

MemoryFile& MemoryFile::operator=(MemoryFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::filesystem::path MemoryFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_);
}

void MemoryFile::write_at(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      fail<SystemError>("{} bytes cannot be written to a file in memory: {}", bytes.size(),
                        errno_text(errno));
    bytes = bytes.subspan(count);
    offset += count;
  }
}

void MemoryFile::clear() const {
  if (::ftruncate(descriptor_, 0) != 0)
    fail<SystemError>("a file in memory cannot be emptied: {}", errno_text(errno));
}

}  // namespace pecia::io
