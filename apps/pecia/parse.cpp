// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/parse.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/pecia/complaint.hpp"

namespace pecia::app {
namespace {

/// Without this, CLI11 would format footers as paragraphs from version 2.5 on.
template <typename Formatter>
void keep_footers_as_they_are(Formatter& formatter) {
  if constexpr (requires { formatter.enable_footer_formatting(false); })
    formatter.enable_footer_formatting(false);
}

}  // namespace

std::optional<int> parse(Context& context, const std::string& version, int argc, char** argv) {
  CLI::App app("Language-model inference over very long documents, as offline batches.", "pecia");
  app.set_version_flag("--version", version);
  app.require_subcommand(0, 1);  // the error then names a word that is no command
  keep_footers_as_they_are(*app.get_formatter());
  app.footer(
      examples({"pecia run --print-default > job.yaml",
                "mpirun -np 4 --bind-to none pecia run job.yaml  # srun starts ranks as well",
                "pecia inspect runs/books --watch", "pecia COMMAND --help"}));
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return fmt::format(
        "pecia: {}\n       pecia --help and pecia COMMAND --help say what there is.\n",
        complaint(*failed, error));
  });
  add_run(app, context);
  add_tune(app, context);
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
  return std::nullopt;
}

}  // namespace pecia::app
