// SPDX-License-Identifier: Apache-2.0
/// The benchmarks, one for each subcommand. Exit code 0: done; 2: a user's error; 1: anything else,
/// including a failed --check. An error on one rank alone ends the job.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/command_line/version.hpp"
#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/mpi_environment.hpp"
#include "lib/work/resources/threads.hpp"

namespace pecia::bench {
namespace {

constexpr std::chrono::seconds wait_timeout{600};

/// Returns an exit code where there is nothing to run.
std::optional<int> parse(Chosen& chosen, bool first, int argc, char** argv) {
  CLI::App app("Benchmarks of Pecia", "pecia-bench");
  app.set_version_flag("--version", command_line::version("pecia-bench"));
  app.require_subcommand(0, 1);  // the error then names a word that is no subcommand
  for (const auto add :
       {add_comm, add_decode, add_demand, add_gap, add_goodput, add_mixed, add_ops, add_pace,
        add_plan, add_prefill, add_products, add_schedule, add_simulation, add_writers})
    add(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (first) app.exit(error);
    return error.get_exit_code() == 0 ? 0 : 2;
  }
  return {};
}

int run(const Chosen& chosen, comm::Communicator& world) {
  const std::string name = "pecia-bench " + chosen.name;
  try {
    cluster::refuse_copies(cluster::launch_facts(), world.size());
    Session session{world, chosen.options, chosen.name, comm::MpiEnvironment::library_version()};
    if (session.options.threads == 0)
      session.options.threads = resources::threads_of_rank(world).count;
    chosen.body(session);
    return 0;
  } catch (const InputError& error) {  // thrown on every rank, as is CheckFailed
    if (world.rank() == 0) fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  } catch (const CheckFailed& error) {
    if (world.rank() == 0) fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: rank {} (host {}): {}\n", name, world.rank(), cluster::host_name(),
               error.what());
    if (world.size() > 1) comm::MpiEnvironment::abort(1);
    return 1;
  }
}

int main(int argc, char** argv) {
  comm::MpiEnvironment mpi;
  const auto world = mpi.world(wait_timeout);
  Chosen chosen;
  if (const auto exit_code = parse(chosen, world->rank() == 0, argc, argv)) return *exit_code;
  if (!chosen.body) {
    if (world->rank() == 0)
      fmt::print(stderr, "pecia-bench: no benchmark given; pecia-bench --help lists them\n");
    return 2;
  }
  return run(chosen, *world);
}

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) {
  try {
    return pecia::bench::main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "pecia-bench: {}\n", error.what());
    return 1;
  }
}
