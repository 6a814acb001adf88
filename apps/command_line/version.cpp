// SPDX-License-Identifier: Apache-2.0
#include "apps/command_line/version.hpp"

#include <fmt/format.h>

#include "lib/base/core/build_info.hpp"

namespace pecia::command_line {

std::string version(const std::string& program) {
  const BuildInfo& build = build_info();
  return fmt::format("{} {} (commit {}, {}, {})", program, build.version, build.commit,
                     build.build_type, build.compiler);
}

}  // namespace pecia::command_line
