// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/displaced.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;

/// The path that the open file has now; absent where it has none. NFS keeps a removed file as
/// .nfsNUMBER until it is closed.
std::optional<fs::path> present_path(const File& file) {
  struct stat status;
  if (::fstat(file.descriptor(), &status) != 0 || status.st_nlink == 0) return {};
  std::error_code unknown;
  const fs::path path = fs::read_symlink(path_of_descriptor(file.descriptor()), unknown);
  if (unknown || path.filename().string().starts_with(".nfs")) return {};
  return path;
}

/// Copies the parts of the file that were written; the rest stays a hole.
void copy_written(const File& from, const File& to) {
  const int64_t size = from.size();
  if (::ftruncate(to.descriptor(), size) != 0)
    fail<SystemError>("{}: {}", to.path().string(), errno_text(errno));
  std::vector<std::byte> piece(1 << 20);
  for (int64_t end = 0; end < size;) {
    int64_t at = ::lseek(from.descriptor(), end, SEEK_DATA);
    if (at < 0 && errno == ENXIO) break;  // nothing was written from here on
    if (at >= 0) end = ::lseek(from.descriptor(), at, SEEK_HOLE);
    if (at < 0 || end < 0) fail<SystemError>("{}: {}", from.path().string(), errno_text(errno));
    for (; at < end; at += std::ssize(piece)) {
      const auto part = std::span(piece).first(std::min<int64_t>(std::ssize(piece), end - at));
      from.read_at(at, part);
      to.write_at(at, part);
    }
  }
  to.sync_data();
}

fs::path rescued_path(const fs::path& path) {
  const fs::path folder = fs::absolute(path).lexically_normal().parent_path();
  return folder.string() + ".rescued." + path.filename().string();
}

}  // namespace

void require_in_place(const File& file) {
  if (file.is_in_place()) return;
  const std::string path = file.path().string();
  if (const auto now = present_path(file))
    fail<SystemError>(
        "{} was moved while the run went on. All that is done is in {}: move it back and run the "
        "same command to continue",
        path, now->string());
  const fs::path rescued = rescued_path(file.path());
  try {
    copy_written(file, File::make(rescued));
  } catch (const Error& error) {
    fail<SystemError>(
        "{} was removed while the run went on, and no copy can be made of what is done, so it is "
        "lost: {}",
        path, error.what());
  }
  fail<SystemError>(
      "{} was removed while the run went on. All that is done was copied to {}: move it to where "
      "it "
      "was and run the same command to continue",
      path, rescued.string());
}

}  // namespace pecia::io
