// SPDX-License-Identifier: Apache-2.0
/// The command. It alone uses MPI directly; everything else receives a communicator.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "apps/command_line/version.hpp"
#include "apps/pecia/command.hpp"
#include "apps/pecia/parse.hpp"
#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/machine.hpp"

namespace pecia::app {
namespace {

/// Longer than any rank computes without a collective: a slow disk may take minutes for the
/// weights.
constexpr std::chrono::seconds wait_timeout{1800};

std::string with_rank(const Context& context, const std::exception& error) {
  const watch::RankRecord mine = watch::record_of(*context.watch.activity(), cluster::host_name());
  return fmt::format("rank {} (host {}), {}: {}", context.world.rank(), cluster::host_name(),
                     watch::place_of(mine), text_of(error));
}

/// Leaves with an error that, by its kind, every rank has met. One rank prints it. A rank that
/// turns out to be alone with the error ends the job, as the others wait for it.
int leave_with(const Context& context, const std::exception& error, int exit_code) {
  constexpr std::chrono::seconds all_are_here{10};
  const auto speaks = context.watch.first_to_speak();
  if (speaks.value_or(context.first())) fmt::print(stderr, "pecia: {}\n", text_of(error));
  if (comm::MpiEnvironment::all_leave(all_are_here)) return exit_code;
  if (!speaks && !context.first()) fmt::print(stderr, "pecia: {}\n", with_rank(context, error));
  comm::MpiEnvironment::abort(1);
}

/// Ends the job when a rank fails alone. If several ranks fail, one prints the reason, and the
/// others give it time to do so.
int fail_with(const Context& context, const std::exception& error) {
  const bool speaks = context.watch.first_to_speak().value_or(true);
  if (speaks)
    fmt::print(stderr, "pecia: {}{}\n", with_rank(context, error), context.watch.account());
  if (context.world.size() == 1) return 1;
  if (!speaks) std::this_thread::sleep_for(std::chrono::seconds(2));
  comm::MpiEnvironment::abort(1);
}

int run_chosen(const Context& context) {
  try {
    return context.chosen();
  } catch (const InputError& error) {
    return leave_with(context, error, 2);
  } catch (const SharedError& error) {
    return leave_with(context, error, 1);
  } catch (const std::exception& error) {
    return fail_with(context, error);
  }
}

int main(int argc, char** argv) {
  report::Startup startup("mpi", report::unix_time());
  comm::MpiEnvironment mpi;
  watch::Watch watch([] { comm::MpiEnvironment::abort(1); });
  const auto world = mpi.world(wait_timeout, watch.activity());
  Context context{mpi, *world, watch, startup, {}};

  if (const auto exit_code = parse(context, command_line::version("pecia"), argc, argv))
    return *exit_code;
  if (!context.chosen) {
    if (context.first()) fmt::print(stderr, "pecia: no command given; pecia --help lists them\n");
    return 2;
  }
  return run_chosen(context);
}

}  // namespace
}  // namespace pecia::app

int main(int argc, char** argv) {
  return pecia::app::reported([&] { return pecia::app::main(argc, argv); });
}
