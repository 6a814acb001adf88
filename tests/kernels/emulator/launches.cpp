// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulator/launches.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <tuple>

#include "tests/kernels/emulator/cuda.hpp"

namespace pecia::test::emulator {
namespace {

std::atomic<int64_t> launched = 0;

class Launches {
 public:
  explicit Launches(const char* file) : file_(file) {
    PECIA_CHECK(file_.is_open(), "{}: cannot be written", file);
  }

  void note(const void* kernel, const kernels::cuda::Grid& grid) {
    const std::lock_guard lock(mutex_);
    if (!known_.emplace(kernel, grid.threads, grid.shared_bytes).second) return;
    Dl_info program;
    PECIA_CHECK(dladdr(kernel, &program) != 0, "a kernel that is in no program");
    const auto offset = static_cast<const char*>(kernel) - static_cast<char*>(program.dli_fbase);
    file_ << program_ << ' ' << std::hex << offset << std::dec << ' ' << grid.threads << ' '
          << grid.shared_bytes << std::endl;
  }

 private:
  std::ofstream file_;
  std::string program_ = std::filesystem::read_symlink("/proc/self/exe").string();
  std::mutex mutex_;
  std::set<std::tuple<const void*, int, int64_t>> known_;
};

}  // namespace

void note_launch(const void* kernel, const kernels::cuda::Grid& grid) {
  ++launched;
  static const char* const file = std::getenv("PECIA_KERNEL_LAUNCHES");
  if (file == nullptr) return;
  static Launches launches(file);
  launches.note(kernel, grid);
}

int64_t num_launches() {
  return launched;
}

}  // namespace pecia::test::emulator
