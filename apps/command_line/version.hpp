// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace pecia::command_line {

/// What --version prints: "pecia 0.2.0 (commit 0ba1da9e, Release, GNU 12.2.0)".
std::string version(const std::string& program);

}  // namespace pecia::command_line
