// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes a file at offsets by plain system calls, and makes writes durable.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace pecia::io {

enum class Access { read, write };

/// Text of an errno value, e.g. "No space left on device".
std::string errno_text(int error);

/// Owns a file descriptor, which is closed on exec. Every failure is a SystemError with the path
/// and errno's text. Several threads may read and write.
class File {
 public:
  /// Opens an existing regular file. `Access::write` opens it for reading and writing.
  File(std::filesystem::path path, Access access);

  /// Opens a file named by the user. Throws InputError when it is absent, cannot be opened, or is
  /// not a regular file: a pipe would make the program wait for its writer.
  static File open_input(const std::filesystem::path& path, Access access = Access::read);

  /// Makes a new, empty file for reading and writing, with `mode` less the umask. What has the name
  /// already is removed; a link is not followed.
  static File make(const std::filesystem::path& path, mode_t mode = 0666);

  /// Another descriptor of an open file. `name` begins messages.
  static File sharing(int descriptor, std::filesystem::path name);

  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  int64_t size() const;

  /// Gives the file another name in place of path(); an existing file of that name is replaced.
  void rename_to(const std::filesystem::path& path);

  /// Whether path() still names this file: it was neither moved, nor replaced, nor removed. True
  /// where that cannot be found out.
  bool is_in_place() const;

  /// Fills `out` from `offset` on. It is an error if the file ends earlier.
  void read_at(int64_t offset, std::span<std::byte> out) const;
  /// Asks the system to begin to read these bytes, which read_at will want. This is a hint alone.
  void prefetch(int64_t offset, int64_t bytes) const;
  void write_at(int64_t offset, std::span<const std::byte> bytes) const;

  /// Asks the system for disk space for the first `bytes`, in few pieces. The size stays. This is a
  /// hint alone: without it writes find their space one after the other.
  void reserve(int64_t bytes) const;

  /// Returns when all writes to the file by any process of this host are on the disk.
  void sync_data() const;

 private:
  File(std::filesystem::path path, int descriptor);
  bool is_regular() const;
  std::string kind() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Returns when the names in `folder` are on the disk. Does nothing on file systems without this
/// operation.
void sync_folder(const std::filesystem::path& folder);

}  // namespace pecia::io
