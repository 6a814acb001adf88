#include "lib/report/memory.hpp"

#include <fstream>
#include <limits>
#include <string>

#include "lib/core/error.hpp"

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

}  // namespace pecia::report
