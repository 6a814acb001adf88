// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Parses the command line, with the options and help of every subcommand.

#include <optional>
#include <string>

#include "apps/pecia/command.hpp"

namespace pecia::app {

/// Sets `context.chosen` if the arguments name a command. Returns an exit code when there is
/// nothing to run: after --help, after --version, or after an error, which rank 0 has then printed.
std::optional<int> parse(Context& context, const std::string& version, int argc, char** argv);

}  // namespace pecia::app
