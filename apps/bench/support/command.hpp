// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What every subcommand has: a name, options of its own beside those of all, and a body.

#include <functional>
#include <string>
#include <vector>

#include "apps/command_line/options.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::bench {

/// Options that every benchmark has.
struct CommonOptions {
  int runs = 5;
  int threads = 0;                  ///< threads of each rank; 0: as a run chooses
  std::filesystem::path json = {};  ///< lines are appended to it; empty: none
  bool check = false;
};

/// The arguments of a benchmark's body.
struct Session {
  comm::Communicator& world;
  CommonOptions options;  ///< with `threads` resolved
  std::string name;       ///< "prefill"
  std::string mpi;        ///< library and version

  /// Throws InputError where there are several ranks. `why`: "plays all ranks itself".
  void require_one_rank(const std::string& why) const;
};

/// Collective. It throws InputError and CheckFailed on every rank alike.
using Body = std::function<void(const Session&)>;

/// The subcommand that the command line names.
struct Chosen {
  std::string name;
  CommonOptions options;
  Body body;  ///< empty: no subcommand is named
};

/// A subcommand with its options; those with a default show it in the help.
class Command {
 public:
  /// Adds it to `app`, with the options of every benchmark.
  Command(CLI::App& app, Chosen& chosen, const std::string& name, const std::string& description,
          Body body, const CommonOptions& defaults = {});

  void add(const command_line::Option& option);
  void flag(const char* name, bool* into, const char* help);
  void positive(const char* name, command_line::Target into, const char* help);
  void not_negative(const char* name, command_line::Target into, const char* help);
  void word(const char* name, std::string* into, const char* help, std::vector<std::string> among);

 private:
  CLI::App* command_;
};

}  // namespace pecia::bench
