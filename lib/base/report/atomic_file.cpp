// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/atomic_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"

namespace pecia::report {
namespace {

namespace fs = std::filesystem;

/// A new file beside `path`, which is removed unless it was renamed away.
class PartFile {
 public:
  PartFile(const fs::path& path, mode_t mode)
      : path_(path.string() + ".part"), descriptor_(open_new_file(path_, mode)) {
    if (descriptor_ < 0)
      fail<SystemError>("{}: cannot be created: {}", path_.string(), std::strerror(errno));
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    ::close(descriptor_);
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  fs::path path_to_write() const { return path_of_descriptor(descriptor_); }

  void flush_to_disk() const {
    if (::fsync(descriptor_) != 0)
      fail<SystemError>("{}: cannot be flushed to disk: {}", path_.string(), std::strerror(errno));
  }

 private:
  fs::path path_;
  int descriptor_;
};

}  // namespace

void write_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write,
                      mode_t mode) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error)
    fail<SystemError>("{}: the folder cannot be made: {}", path.parent_path().string(),
                      error.message());
  const PartFile part(path, mode);
  std::ofstream out(part.path_to_write(), std::ios::binary | std::ios::trunc);
  if (!out)
    fail<SystemError>("{}: cannot be created: {}", part.path().string(), std::strerror(errno));
  write(out);
  out.close();
  if (!out)
    fail<SystemError>("{}: cannot be written; is the disk full or a quota reached?",
                      part.path().string());
  part.flush_to_disk();
  fs::rename(part.path(), path, error);
  if (error)
    fail<SystemError>("{}: cannot be renamed to {}: {}", part.path().string(), path.string(),
                      error.message());
}

void write_atomically(const fs::path& path, std::string_view text, mode_t mode) {
  write_atomically(
      path, [&](std::ostream& out) { out << text; }, mode);
}

}  // namespace pecia::report
