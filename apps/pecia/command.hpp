// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the subcommands share. Each is one file with one add_… function, which declares its options
/// and, when the command line asks for it, leaves its work in `Context::chosen`.

#include <exception>
#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/comm/mpi_environment.hpp"
#include "lib/report/startup.hpp"
#include "lib/watch/watch.hpp"

namespace CLI {
class App;
}

namespace pecia::app {

struct Context {
  comm::MpiEnvironment& mpi;
  comm::Communicator& world;
  watch::Watch& watch;
  report::Startup& startup;
  std::function<int()> chosen;  ///< collective; returns the exit code, the same on every rank

  bool first() const { return world.rank() == 0; }
};

void add_run(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_inspect(CLI::App& app, Context& context);
void add_topology(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);

/// A help's footer: "Examples:", then a line for each command.
std::string examples(std::initializer_list<const char*> commands);

/// The error's message as a terminal can show it: what it quotes from files is cut short, and
/// control characters become '?'.
std::string text_of(const std::exception& error);

/// The exit code of `work`; what it throws is printed as "pecia: …" and becomes 2 (InputError)
/// or 1.
int reported(const std::function<int()>& work);

/// reported(work) on rank 0 alone; collective, every rank gets its exit code.
int on_first_rank(comm::Communicator& world, const std::function<int()>& work);

/// Every rank's value by rank on rank 0, nothing on the others. Collective.
std::vector<nlohmann::ordered_json> gather_json(comm::Communicator& world,
                                                const nlohmann::ordered_json& mine);

/// JSON text that any bytes survive; file and host names need not be UTF-8.
std::string dump(const nlohmann::ordered_json& value, int indent = 2);

/// {0, 1, 2, 5} → "0-2,5"; the numbers ascend.
std::string ranges(const std::vector<int>& numbers);

}  // namespace pecia::app
