/// The command. MPI lives here; everything else receives its communicator.

#include <fmt/format.h>

#include <cstdio>

#include "apps/pecia/command.hpp"
#include "lib/comm/machine.hpp"
#include "lib/core/build_info.hpp"
#include "lib/core/error.hpp"

namespace pecia::app {
namespace {

/// Longer than any rank computes alone: a slow disk may take minutes for the weights.
constexpr std::chrono::seconds wait_timeout{1800};

std::string version() {
  const BuildInfo& build = build_info();
  return fmt::format("pecia {} (commit {}, {}, {})", build.version, build.commit, build.build_type,
                     build.compiler);
}

/// A rank that fails alone ends the job: the others wait for it.
int run_chosen(const Context& context) {
  try {
    return context.chosen();
  } catch (const InputError& error) {  // thrown on every rank alike
    if (context.first()) fmt::print(stderr, "pecia: {}\n", text_of(error));
    return 2;
  } catch (const SharedError& error) {  // likewise
    if (context.first()) fmt::print(stderr, "pecia: {}\n", text_of(error));
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "pecia: rank {} (host {}): {}\n", context.world.rank(), comm::host_name(),
               text_of(error));
    if (context.world.size() > 1) comm::MpiEnvironment::abort(1);
    return 1;
  }
}

int main(int argc, char** argv) {
  comm::MpiEnvironment mpi(argc, argv);
  const auto world = mpi.world(wait_timeout);
  Context context{mpi, *world, {}};

  CLI::App app("Language-model inference over very long documents, as offline batches.", "pecia");
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);  // a word that is no command is then named in the error
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format(
        "pecia: {}\n       pecia --help and pecia COMMAND --help say what there is.\n",
        error.what());
  });
  add_run(app, context);
  add_plan(app, context);
  add_inspect(app, context);
  add_topology(app, context);
  add_doctor(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (context.first()) app.exit(error);
    return error.get_exit_code() == 0 ? 0 : 2;
  }
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
