// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/memory.hpp"

#include <time.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "lib/base/core/error.hpp"

namespace pecia::report {

int64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    if (key == "VmHWM:") {
      int64_t kibibytes = 0;
      status >> kibibytes;
      if (status) return kibibytes * 1024;
    }
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  fail<SystemError>("/proc/self/status has no VmHWM line; is /proc mounted?");
}

double cpu_seconds() {
  timespec now{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0)
    fail<SystemError>("clock_gettime: {}", std::strerror(errno));
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace pecia::report
