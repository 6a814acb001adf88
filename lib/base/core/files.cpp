// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lib/base/core/error.hpp"

namespace pecia {

int open_new_file(const std::filesystem::path& path, mode_t mode) {
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int descriptor = ::open(path.c_str(), flags, mode);
  if (descriptor >= 0 || errno != EEXIST) return descriptor;
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return -1;
  return ::open(path.c_str(), flags, mode);
}

std::filesystem::path path_of_descriptor(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

std::optional<std::string> text_of_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return {};
  std::string text;
  std::array<char, 1 << 14> piece;
  struct stat status;
  ssize_t count = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) ? 1 : -1;
  while (count > 0) {
    do count = ::read(descriptor, piece.data(), piece.size());
    while (count < 0 && errno == EINTR);
    if (count > 0) text.append(piece.data(), count);
  }
  ::close(descriptor);
  if (count < 0) return {};
  return text;
}

void refuse_foreign_link(const std::filesystem::path& folder) {
  struct stat link, around;
  if (::lstat(folder.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return;
  if (link.st_uid == ::geteuid()) return;
  if (::stat((folder / "..").lexically_normal().c_str(), &around) == 0 &&
      around.st_uid == link.st_uid)
    return;
  fail<InputError>(
      "{} is a symbolic link that another user (number {}) has made, and files are replaced where "
      "it leads to; remove it",
      folder.string(), link.st_uid);
}

}  // namespace pecia
