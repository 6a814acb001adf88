#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "apps/pecia/command.hpp"
#include "apps/pecia/summaries.hpp"
#include "lib/core/error.hpp"
#include "lib/io/hdf5.hpp"

namespace pecia::app {
namespace {

struct Options {
  std::filesystem::path path;
  bool json = false, watch = false;
};

std::filesystem::path file_of(const std::filesystem::path& path) {
  std::error_code ignored;  // what cannot be looked at, opening it will say why
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const std::filesystem::path results = path / "results.h5";
  if (!std::filesystem::exists(results, ignored))
    fail<InputError>("{}: a folder without results.h5: no run has begun in it", path.string());
  return results;
}

nlohmann::ordered_json summarize(const std::filesystem::path& file) {
  // A prompt shard need not name its schema, a results file does.
  const auto schema = io::Hdf5File::open(file).text_attribute("schema");
  if (schema && schema->starts_with("pecia.results/")) return summarize_results(file);
  return summarize_prompts(file);
}

bool finished(const nlohmann::ordered_json& summary) {
  return summary["kind"] != "results" || (summary["open"] == 0 && summary["partial"] == 0);
}

int inspect_command(const Options& options) {
  const bool redraw = options.watch && !options.json && isatty(STDOUT_FILENO) == 1;
  for (;;) {
    const nlohmann::ordered_json summary = summarize(file_of(options.path));
    if (redraw) fmt::print("\x1b[H\x1b[J");
    if (options.json)
      fmt::print("{}\n", dump(summary, options.watch ? -1 : 2));
    else
      fmt::print("{}",
                 summary["kind"] == "results" ? results_text(summary) : prompts_text(summary));
    std::fflush(stdout);
    if (!options.watch || finished(summary)) return 0;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  const auto options = std::make_shared<Options>();
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Says what is in a prompt shard, a results file or a run's folder.");
  inspect->add_option("path", options->path, "The file or folder")->required()->type_name("PATH");
  inspect->add_flag("--json", options->json, "JSON instead of text");
  inspect->add_flag("--watch", options->watch, "Again every second, until the run has finished");
  inspect->callback([options, &context] {
    context.chosen = [options, &context] {
      return on_first_rank(context.world, [&] { return inspect_command(*options); });
    };
  });
}

}  // namespace pecia::app
