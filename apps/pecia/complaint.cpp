// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/complaint.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "apps/pecia/printable.hpp"
#include "lib/base/core/mistyped.hpp"

namespace pecia::app {
namespace {

std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

/// Lists a command's long options, or the commands where none was given.
std::vector<std::string> known_words(const CLI::App& app, bool option) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  std::vector<std::string> known;
  if (option) {
    const CLI::App& command = commands.empty() ? app : *commands.front();
    for (const CLI::Option* of : command.get_options())
      for (const std::string& name : of->get_lnames()) known.push_back("--" + name);
  } else if (commands.empty()) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(command->get_name());
  }
  return known;
}

std::optional<std::string> nearest(std::string_view typed, const std::vector<std::string>& known) {
  const std::string_view word = without_dashes(typed.substr(0, typed.find('=')));
  std::optional<std::string> best;
  size_t best_distance = SIZE_MAX;
  for (const std::string& candidate : known) {
    const std::string_view name = without_dashes(candidate);
    if (!may_mean(word, name)) continue;
    if (const size_t distance = edit_distance(word, name); distance < best_distance)
      best_distance = distance, best = candidate;
  }
  return best;
}

}  // namespace

std::string complaint(const CLI::App& app, const CLI::Error& error) {
  constexpr size_t shown_bytes = 200;
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return error.what();
  std::string words;
  for (const std::string& argument : unknown) {
    const auto meant = nearest(argument, known_words(app, argument.starts_with('-')));
    words += fmt::format("{}{}{}", words.empty() ? "" : ", ", printable(argument, shown_bytes),
                         meant ? fmt::format(" (did you mean {}?)", *meant) : "");
  }
  const bool command = app.get_subcommands().empty() && !unknown.front().starts_with('-');
  return fmt::format("unknown {}{}: {}", command ? "command" : "argument",
                     unknown.size() == 1 || command ? "" : "s", words);
}

}  // namespace pecia::app
