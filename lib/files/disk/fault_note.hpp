// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ends the process with a readable message when a library crashes on a damaged file. HDF5 (1.10.8)
/// trusts the sizes and addresses in such a file, and then reads memory that does not exist.

#include <signal.h>

#include <array>
#include <filesystem>
#include <string>

namespace pecia::io {

/// While it lives, a fault of this thread (SIGSEGV, SIGBUS, SIGFPE) ends the process with code 2,
/// as an InputError does, and reports that `file` is damaged. It throws no exception, because after
/// a fault no memory can be trusted. Faults of other threads end the process in the usual way. A
/// process has at most one FaultNote at a time.
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
