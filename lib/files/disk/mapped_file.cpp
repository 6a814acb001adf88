// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/mapped_file.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/file.hpp"

namespace pecia::io {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const File file = File::open_input(path);
  const auto size = static_cast<size_t>(file.size());
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED)
    fail<SystemError>("{}: its {} bytes cannot be mapped: {}", path.string(), size,
                      errno_text(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

void MappedFile::release_pages() const {
  if (!bytes_.empty())
    ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace pecia::io
