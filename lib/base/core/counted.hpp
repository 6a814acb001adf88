// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers of things in sentences.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace pecia {

/// "1 request", "2 requests"; `noun` has a plural in -s.
inline std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace pecia
