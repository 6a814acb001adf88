// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Maps a whole file read-only and shared. Only pages that are touched are read.

#include <cstddef>
#include <filesystem>
#include <span>

namespace pecia::io {

class MappedFile {
 public:
  /// Throws InputError when the file cannot be opened (File::open_input), SystemError when it
  /// cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// Valid while this object lives. If the file is truncated meanwhile, an access may end the
  /// process (SIGBUS).
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Lets go of the pages that were touched. They are mapped again when they are touched again.
  void release_pages() const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace pecia::io
