// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Memory that the processes of a host share, in the form of a file without a name.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace pecia::io {

/// Its pages take memory when they are written. They are freed when no process has the file open or
/// mapped any more, so nothing is left of it after a kill.
class MemoryFile {
 public:
  /// Throws SystemError where the system has no such files.
  explicit MemoryFile(int64_t bytes);
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) noexcept;

  /// Processes of the same user on this host can open and map it by this path, as long as this
  /// object lives.
  std::filesystem::path path() const;

  void write_at(int64_t offset, std::span<const std::byte> bytes) const;

  /// Frees the pages, mapped or not. A process that touches a map of them afterwards is killed
  /// (SIGBUS).
  void clear() const;

 private:
  int descriptor_ = -1;
};

}  // namespace pecia::io
