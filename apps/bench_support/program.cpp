// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_support/program.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/bench_support/agreement.hpp"
#include "apps/command_line/options.hpp"
#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/mpi_environment.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::bench {
namespace {

constexpr std::chrono::seconds wait_timeout{600};

void add_common_options(CLI::App& app, CommonOptions& options) {
  command_line::add_option(app, {.name = "--runs",
                                 .into = &options.runs,
                                 .help = "Timed runs of each case; the median counts",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--threads",
                                 .into = &options.threads,
                                 .help = "Threads of each rank; 0: as pecia run chooses them",
                                 .show_default = true,
                                 .sign = command_line::Sign::not_negative});
  command_line::add_option(app, {.name = "--json",
                                 .into = &options.json,
                                 .help = "Appends one JSON object a line to this file"});
  command_line::add_option(app, {.name = "--check",
                                 .into = &options.check,
                                 .help = "Also verifies results; a wrong one is an error"});
}

int run_body(const Benchmark& benchmark, Session& session) {
  comm::Communicator& world = session.world;
  try {
    cluster::refuse_copies(cluster::launch_facts(), world.size());
    if (session.options.threads == 0)
      session.options.threads = resources::threads_of_rank(world).count;
    benchmark.run(session);
    return 0;
  } catch (const InputError& error) {  // thrown on every rank, as is CheckFailed
    if (world.rank() == 0) fmt::print(stderr, "{}: {}\n", benchmark.name, error.what());
    return 2;
  } catch (const CheckFailed& error) {
    if (world.rank() == 0) fmt::print(stderr, "{}: {}\n", benchmark.name, error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: rank {} (host {}): {}\n", benchmark.name, world.rank(),
               cluster::host_name(), error.what());
    if (world.size() > 1) comm::MpiEnvironment::abort(1);
    return 1;
  }
}

int run_under_mpi(const Benchmark& benchmark, int argc, char** argv) {
  comm::MpiEnvironment mpi;
  mpi.start();  // bench_comm calls MPI itself
  const auto world = mpi.world(wait_timeout);
  Session session{*world, {}, benchmark.name, comm::MpiEnvironment::library_version()};
  CLI::App app(benchmark.description, benchmark.name);
  benchmark.add_options(app);
  add_common_options(app, session.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (world->rank() == 0) app.exit(error);
    return error.get_exit_code() == 0 ? 0 : 2;
  }
  return run_body(benchmark, session);
}

}  // namespace

int run_benchmark(const Benchmark& benchmark, int argc, char** argv) {
  try {
    return run_under_mpi(benchmark, argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", benchmark.name, error.what());
    return 1;
  }
}

}  // namespace pecia::bench
