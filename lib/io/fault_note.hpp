// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A readable end where a library crashes on a damaged file: HDF5 (1.10.8) trusts sizes and
/// addresses that such a file gives, and reads memory that is not there.

#include <signal.h>

#include <array>
#include <filesystem>
#include <string>

namespace pecia::io {

/// While it lives, a fault of this thread (SIGSEGV, SIGBUS, SIGFPE) ends the process with code 2,
/// as an InputError does, and says that `file` is damaged. After a fault nothing in memory can be
/// trusted, so there is no exception. Faults of other threads are none of its business and end the
/// process as they do without it. One at a time in a process.
class FaultNote {
 public:
  explicit FaultNote(const std::filesystem::path& file);
  ~FaultNote();
  FaultNote(const FaultNote&) = delete;
  FaultNote& operator=(const FaultNote&) = delete;

 private:
  static void on_fault(int number, siginfo_t* info, void* context);

  static constexpr std::array numbers = {SIGSEGV, SIGBUS, SIGFPE};
  std::string text_;
  pid_t thread_;
  std::array<struct sigaction, numbers.size()> before_{};
};

}  // namespace pecia::io
