// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/command.hpp"

#include <memory>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::bench {

void Session::require_one_rank(const std::string& why) const {
  if (world.size() > 1) fail<InputError>("{}; it was started with {} ranks", why, world.size());
}

Command::Command(CLI::App& app, Chosen& chosen, const std::string& name,
                 const std::string& description, Body body, const CommonOptions& defaults) {
  const auto common = std::make_shared<CommonOptions>(defaults);
  command_ = &command_line::add_command(app, name, description, "", [=, &chosen] {
    chosen = {name, *common, body};
  });
  positive("--runs", &common->runs, "Timed runs of each case; the median counts");
  not_negative("--threads", &common->threads, "Threads of each rank; 0: as pecia run chooses them");
  add({.name = "--json",
       .into = &common->json,
       .help = "Appends one JSON object a line to this file"});
  flag("--check", &common->check, "Also verifies results; a wrong one is an error");
}

void Command::add(const command_line::Option& option) {
  command_line::add_option(*command_, option);
}

void Command::flag(const char* name, bool* into, const char* help) {
  add({.name = name, .into = into, .help = help});
}

void Command::positive(const char* name, command_line::Target into, const char* help) {
  add({.name = name,
       .into = into,
       .help = help,
       .show_default = true,
       .sign = command_line::Sign::positive});
}

void Command::not_negative(const char* name, command_line::Target into, const char* help) {
  add({.name = name,
       .into = into,
       .help = help,
       .show_default = true,
       .sign = command_line::Sign::not_negative});
}

void Command::word(const char* name, std::string* into, const char* help,
                   std::vector<std::string> among) {
  add({.name = name, .into = into, .help = help, .show_default = true, .among = std::move(among)});
}

}  // namespace pecia::bench
