// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Says in words what is wrong with a command line.

#include <CLI/CLI.hpp>
#include <string>

namespace pecia::app {

/// Call it after `app` has thrown `error`. It lists the unknown arguments in the order given, each
/// with what it may have meant; if there are none, it returns CLI11's own words.
std::string complaint(const CLI::App& app, const CLI::Error& error);

}  // namespace pecia::app
