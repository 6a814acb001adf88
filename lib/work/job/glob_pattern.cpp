// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/glob_pattern.hpp"

namespace pecia::job {

std::string escaped_for_glob(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace pecia::job
