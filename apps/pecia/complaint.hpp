// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What is wrong with a command line, in words.

#include <CLI/CLI.hpp>
#include <string>

namespace pecia::app {

/// After `app` has thrown `error`: the arguments that it does not know, in the order given, each
/// with what it may have meant; else CLI11's own words.
std::string complaint(const CLI::App& app, const CLI::Error& error);

}  // namespace pecia::app
