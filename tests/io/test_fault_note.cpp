// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "lib/files/disk/fault_note.hpp"

namespace pecia::io {
namespace {

/// A fault of the processor, not a signal that somebody sent; and nothing that a sanitizer sees.
void fault() {
  void* const closed = ::mmap(nullptr, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(closed) = 1;
}

TEST(FaultNote, EndsTheProcessWithTheFilesName) {
  EXPECT_EXIT(
      {
        const FaultNote note("prompts/a.h5");
        fault();
      },
      testing::ExitedWithCode(2),
      "^pecia: prompts/a.h5: HDF5 crashed on it, so the file is damaged");
}

/// Killed by the signal, or by a sanitizer that explains it.
bool as_without_it(int status) {
  return WIFSIGNALED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 2);
}

TEST(FaultNote, LeavesOtherFaultsAlone) {
  EXPECT_EXIT(
      {
        { const FaultNote note("prompts/a.h5"); }
        fault();
      },
      as_without_it, "");
  EXPECT_EXIT(
      {
        const FaultNote note("prompts/a.h5");
        ::raise(SIGSEGV);
      },
      as_without_it, "");
  EXPECT_EXIT(
      {
        const FaultNote note("prompts/a.h5");
        std::thread(fault).join();
      },
      as_without_it, "");
}

}  // namespace
}  // namespace pecia::io
