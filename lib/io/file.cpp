// SPDX-License-Identifier: Apache-2.0
#include "lib/io/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lib/core/error.hpp"

namespace pecia::io {

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

File::File(std::filesystem::path path, Access access) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), (access == Access::read ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  if (descriptor_ < 0)
    fail<SystemError>("{}: cannot be opened for {}: {}", path_.string(),
                      access == Access::read ? "reading" : "writing", errno_text(errno));
}

File::File(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

File File::open_input(const std::filesystem::path& path) {
  // With O_NONBLOCK a pipe opens without waiting for a writer. It has no effect on regular files.
  File file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.descriptor_ < 0)
    fail<InputError>("{}: cannot be opened for reading: {}; correct the path or its permissions",
                     path.string(), errno_text(errno));
  struct stat status;
  if (::fstat(file.descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
    fail<InputError>("{}: no regular file, but a {}; name a file that holds its content",
                     path.string(), S_ISDIR(status.st_mode) ? "folder" : "pipe or device");
  return file;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

int64_t File::size() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0)
    fail<SystemError>("{}: its size cannot be read: {}", path_.string(), errno_text(errno));
  return status.st_size;
}

void File::read_at(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      fail<SystemError>("{}: {} bytes at offset {} cannot be read: {}", path_.string(), out.size(),
                        offset, errno_text(errno));
    if (count == 0)
      fail<SystemError>("{}: ends at offset {}, {} bytes too early", path_.string(), offset,
                        out.size());
    out = out.subspan(count);
    offset += count;
  }
}

void File::prefetch(int64_t offset, int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

void File::write_at(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      fail<SystemError>("{}: {} bytes at offset {} cannot be written: {}", path_.string(),
                        bytes.size(), offset, errno_text(errno));
    bytes = bytes.subspan(count);
    offset += count;
  }
}

void File::reserve(int64_t bytes) const {
  ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, bytes);
}

void File::sync_data() const {
  if (::fdatasync(descriptor_) != 0)
    fail<SystemError>("{}: cannot be brought to the disk: {}", path_.string(), errno_text(errno));
}

void sync_folder(const std::filesystem::path& folder) {
  const File opened(folder.empty() ? "." : folder, Access::read);
  // EINVAL: the file system cannot sync folders (some network and FUSE file systems).
  if (::fsync(opened.descriptor()) != 0 && errno != EINVAL)
    fail<SystemError>("{}: cannot be brought to the disk: {}", opened.path().string(),
                      errno_text(errno));
}

}  // namespace pecia::io
