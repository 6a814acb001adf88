// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file read and written at offsets by plain system calls, and what makes a write durable.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace pecia::io {

enum class Access { read, write };

/// Text of an errno value, e.g. "No space left on device".
std::string errno_text(int error);

/// Owner of a file descriptor, closed on exec. Every failure is a SystemError with the path and
/// errno's text. Reads and writes may come from several threads.
class File {
 public:
  /// Opens an existing file; `Access::write` for reading and writing.
  File(std::filesystem::path path, Access access);

  /// Opens for reading what a user named. InputError where that is absent, cannot be read, or is no
  /// regular file: a pipe would keep the program waiting for its writer.
  static File open_input(const std::filesystem::path& path);

  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  int64_t size() const;

  /// Fills `out` from `offset` on; a file that ends before is an error.
  void read_at(int64_t offset, std::span<std::byte> out) const;
  void write_at(int64_t offset, std::span<const std::byte> bytes) const;

  /// Returns when all that was written is on the disk, by whichever process of this host.
  void sync_data() const;

 private:
  File(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Returns when the names in `folder` are on the disk. File systems that cannot be asked are left
/// alone.
void sync_folder(const std::filesystem::path& folder);

}  // namespace pecia::io
