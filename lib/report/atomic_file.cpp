// SPDX-License-Identifier: Apache-2.0
#include "lib/report/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "lib/core/error.hpp"

namespace pecia::report {
namespace {

namespace fs = std::filesystem;

/// Removes the part file unless it was renamed away.
class PartFile {
 public:
  explicit PartFile(const fs::path& path) : path_(path.string() + ".part") {}
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void flush_to_disk(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int failed = descriptor < 0 ? -1 : fsync(descriptor);
  const int reason = errno;
  if (descriptor >= 0) close(descriptor);
  if (failed != 0)
    fail<SystemError>("{}: cannot be flushed to disk: {}", path.string(), std::strerror(reason));
}

}  // namespace

void write_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error)
    fail<SystemError>("{}: the folder cannot be made: {}", path.parent_path().string(),
                      error.message());
  const PartFile part(path);
  std::ofstream out(part.path(), std::ios::binary | std::ios::trunc);
  if (!out)
    fail<SystemError>("{}: cannot be created: {}", part.path().string(), std::strerror(errno));
  write(out);
  out.close();
  if (!out)
    fail<SystemError>("{}: cannot be written; is the disk full or a quota reached?",
                      part.path().string());
  flush_to_disk(part.path());
  fs::rename(part.path(), path, error);
  if (error)
    fail<SystemError>("{}: cannot be renamed to {}: {}", part.path().string(), path.string(),
                      error.message());
}

void write_atomically(const fs::path& path, std::string_view text) {
  write_atomically(path, [&](std::ostream& out) { out << text; });
}

}  // namespace pecia::report
