// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The command line: every subcommand's options, help and version.

#include <optional>
#include <string>

#include "apps/pecia/command.hpp"

namespace pecia::app {

/// Sets `context.chosen` where the arguments name a command. The exit code when there is nothing to
/// run: after --help, --version, or an error, which rank 0 has then printed.
std::optional<int> parse(Context& context, const std::string& version, int argc, char** argv);

}  // namespace pecia::app
