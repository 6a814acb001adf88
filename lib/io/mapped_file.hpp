// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A whole file mapped read-only and shared; only pages that are touched are read.

#include <cstddef>
#include <filesystem>
#include <span>

namespace pecia::io {

class MappedFile {
 public:
  /// InputError when the file cannot be opened (File::open_input), SystemError when not mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// Valid while this object lives. A file that someone cuts short meanwhile ends the process
  /// (SIGBUS).
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace pecia::io
