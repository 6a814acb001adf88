// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"

namespace pecia::io {
namespace {

/// With O_NONBLOCK a pipe opens without waiting for its other end. It has no effect on regular
/// files.
int opened(const std::filesystem::path& path, Access access) {
  return ::open(path.c_str(),
                (access == Access::read ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
}

const char* words_of(Access access) {
  return access == Access::read ? "reading" : "writing";
}

}  // namespace

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

File::File(std::filesystem::path path, Access access) : File(path, opened(path, access)) {
  if (descriptor_ < 0)
    fail<SystemError>("{}: cannot be opened for {}: {}", path_.string(), words_of(access),
                      errno_text(errno));
  if (!is_regular()) fail<SystemError>("{}: no regular file, but {}", path_.string(), kind());
}

File::File(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

File File::open_input(const std::filesystem::path& path, Access access) {
  File file(path, opened(path, access));
  const bool folder = file.descriptor_ < 0 && errno == EISDIR;  // when it is opened for writing
  if (file.descriptor_ < 0 && !folder)
    fail<InputError>("{}: cannot be opened for {}: {}; correct the path or its permissions",
                     path.string(), words_of(access), errno_text(errno));
  if (!file.is_regular())
    fail<InputError>("{}: no regular file, but {}; name a file that holds its content",
                     path.string(), folder ? "a folder" : file.kind());
  return file;
}

File File::make(const std::filesystem::path& path, mode_t mode) {
  File file(path, open_new_file(path, mode));
  if (file.descriptor_ < 0)
    fail<SystemError>("{} cannot be made: {}", path.string(), errno_text(errno));
  return file;
}

File File::sharing(int descriptor, std::filesystem::path name) {
  File file(std::move(name), ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (file.descriptor_ < 0)
    fail<SystemError>("{}: cannot be opened once more: {}", file.path_.string(), errno_text(errno));
  return file;
}

bool File::is_regular() const {
  struct stat status;
  return ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
}

std::string File::kind() const {
  struct stat status;
  const bool folder = ::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode);
  return folder ? "a folder" : "a pipe or device";
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

void File::rename_to(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::rename(path_, path, error);
  if (error)
    fail<SystemError>("{} cannot be renamed to {}: {}", path_.string(), path.string(),
                      error.message());
  path_ = path;
}

bool File::is_in_place() const {
  struct stat own, named;
  if (::fstat(descriptor_, &own) != 0) return true;
  if (::stat(path_.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
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
  const char* const path = folder.empty() ? "." : folder.c_str();
  const int descriptor = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail<SystemError>("{}: cannot be opened: {}", path, errno_text(errno));
  const int error = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  // EINVAL: the file system cannot sync folders (some network and FUSE file systems).
  if (error != 0 && error != EINVAL)
    fail<SystemError>("{}: cannot be brought to the disk: {}", path, errno_text(error));
}

}  // namespace pecia::io
