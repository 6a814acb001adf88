// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/error.hpp"

namespace pecia::detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  fail<InvalidArgument>("{} ({} is false, {}:{})", message, condition, file, line);
}

}  // namespace pecia::detail
