// SPDX-License-Identifier: Apache-2.0
#include "apps/command_line/options.hpp"

#include <CLI/CLI.hpp>

namespace pecia::command_line {
namespace {

template <typename T>
CLI::Option* declare(CLI::App& app, const Option& option, T* value) {
  return app.add_option(option.name, *value, option.help);
}

CLI::Option* declare(CLI::App& app, const Option& option, bool* value) {
  return app.add_flag(option.name, *value, option.help);
}

CLI::Option* declare(CLI::App& app, const Option& option, Size size) {
  return app.add_option(option.name, *size.bytes, option.help)->transform(CLI::AsSizeValue(false));
}

CLI::Option* declare(CLI::App& app, const Option& option, std::vector<int64_t>* values) {
  return app.add_option(option.name, *values, option.help)->delimiter(',')->allow_extra_args(false);
}

CLI::Option* declare(CLI::App& app, const Option& option, std::vector<double>* values) {
  return app.add_option(option.name, *values, option.help)->delimiter(',')->allow_extra_args(false);
}

CLI::Option* declare(CLI::App& app, const Option& option, std::vector<std::string>* values) {
  return app.add_option(option.name, *values, option.help)->allow_extra_args(false);
}

void check_range(CLI::Option& declared, const Option& option) {
  const auto [least, most] = *option.range;
  if (std::holds_alternative<std::optional<double>*>(option.into) ||
      std::holds_alternative<std::vector<double>*>(option.into))
    declared.check(CLI::Range(least, most));
  else
    declared.check(CLI::Range(static_cast<int>(least), static_cast<int>(most)));
}

}  // namespace

void add_option(CLI::App& app, const Option& option) {
  CLI::Option& declared =
      *std::visit([&](auto into) { return declare(app, option, into); }, option.into);
  if (!option.type.empty()) declared.type_name(option.type);
  if (option.required) declared.required();
  if (option.sign == Sign::positive) declared.check(CLI::PositiveNumber);
  if (option.sign == Sign::not_negative) declared.check(CLI::NonNegativeNumber);
  if (option.exists == Exists::file) declared.check(CLI::ExistingFile);
  if (option.exists == Exists::folder) declared.check(CLI::ExistingDirectory);
  if (option.range) check_range(declared, option);
  if (!option.among.empty()) declared.check(CLI::IsMember(option.among));
  if (!option.needs.empty()) declared.needs(app.get_option(option.needs));
  if (!option.excludes.empty()) declared.excludes(app.get_option(option.excludes));
  if (option.show_default) declared.capture_default_str();
}

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& footer, const std::function<void()>& chosen) {
  CLI::App& command = *app.add_subcommand(name, description);
  command.footer(footer);
  command.callback(chosen);
  return command;
}

}  // namespace pecia::command_line
