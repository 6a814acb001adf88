// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the subcommands share. Each subcommand is one file with one add_… function, which declares
/// its options. When the command line names it, it stores its work in `Context::chosen`.

#include <exception>
#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/base/report/startup.hpp"
#include "lib/ranks/comm/mpi_environment.hpp"
#include "lib/ranks/watch/watch.hpp"

namespace CLI {
class App;
}

namespace pecia::app {

struct Context {
  comm::MpiEnvironment& mpi;
  comm::Communicator& world;
  watch::Watch& watch;
  report::Startup& startup;
  std::function<int()> chosen;  ///< collective; returns the exit code, the same on all ranks

  bool first() const { return world.rank() == 0; }
};

void add_run(CLI::App& app, Context& context);
void add_tune(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_inspect(CLI::App& app, Context& context);
void add_topology(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);

/// The footer of a help text: "Examples:", then a line for each command.
std::string examples(std::initializer_list<const char*> commands);

/// The error's message as a terminal can show it. Quotations from files are cut short, and control
/// characters become '?'.
std::string text_of(const std::exception& error);

/// Runs `work` and returns its exit code. An exception is printed as "pecia: …"; the code is then 2
/// for InputError and 1 for others.
int reported(const std::function<int()>& work);

/// Runs reported(work) on rank 0 alone; collective, and every rank gets its exit code.
int on_first_rank(comm::Communicator& world, const std::function<int()>& work);

/// Gathers every rank's value by rank on rank 0; empty on the others. Collective.
std::vector<nlohmann::ordered_json> gather_json(comm::Communicator& world,
                                                const nlohmann::ordered_json& mine);

/// {0, 1, 2, 5} → "0-2,5"; `numbers` ascend.
std::string ranges(const std::vector<int>& numbers);

}  // namespace pecia::app
