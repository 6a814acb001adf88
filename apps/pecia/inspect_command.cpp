// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "apps/command_line/options.hpp"
#include "apps/pecia/command.hpp"
#include "apps/pecia/summaries.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/disk/run_lock.hpp"
#include "lib/files/hdf5/hdf5.hpp"

namespace pecia::app {
namespace {

using Clock = std::chrono::steady_clock;

struct InspectOptions {
  std::filesystem::path path;
  bool json = false, watch = false;
  std::optional<double> interval_s;
};

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;  // opening the file reports an error
  return std::filesystem::is_directory(path, ignored);
}

bool is_model(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "config.json", ignored);
}

nlohmann::ordered_json summarize(const std::filesystem::path& path) {
  if (is_folder(path)) return is_model(path) ? summarize_model(path) : summarize_run(path);
  // A prompt shard need not name its schema; a results file does.
  const auto schema = io::Hdf5File::open(path).text_attribute("schema");
  if (schema && schema->starts_with("pecia.results/")) return summarize_results(path);
  return summarize_prompts(path);
}

std::string text_of(const nlohmann::ordered_json& summary) {
  if (summary["kind"] == "run") return run_text(summary);
  if (summary["kind"] == "model") return model_text(summary);
  return summary["kind"] == "results" ? results_text(summary) : prompts_text(summary);
}

std::string line_of(const nlohmann::ordered_json& summary) {
  const std::string time = fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr)));
  const std::string text = summary["kind"] == "run" ? run_line(summary) : results_line(summary);
  return fmt::format("{} {}\n", time, text);
}

/// Whether a run works on the folder, or on the file's folder.
bool is_live(const std::filesystem::path& path) {
  const auto holder = io::run_holder(is_folder(path) ? path : path.parent_path());
  return holder && !holder->dead;
}

/// Waits until the interval is over or the run has ended. Returns whether the run goes on.
bool wait_while_live(const std::filesystem::path& path, double seconds) {
  constexpr std::chrono::duration<double> nap(0.2);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (!is_live(path)) return false;
    const std::chrono::duration<double> left = end - Clock::now();
    if (left.count() <= 0) return true;
    std::this_thread::sleep_for(std::min(nap, left));
  }
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// Whether the path is missing or an empty folder, so that a run may be about to begin there.
bool is_awaited(const std::filesystem::path& path) {
  std::error_code ignored;
  return !is_there(path) || (is_folder(path) && std::filesystem::is_empty(path, ignored));
}

/// Whether a run has begun. For a moment its new folder has neither a lock nor results.
bool has_begun(const std::filesystem::path& path) {
  if (!is_folder(path) || is_model(path)) return is_there(path);
  return is_there(path / "results.h5") || io::run_holder(path).has_value();
}

/// Returns at once if the path can be inspected, whether its content is good or bad.
void wait_until_begun(const std::filesystem::path& path) {
  constexpr std::chrono::duration<double> nap(0.2);
  if (!is_awaited(path)) return;
  const std::filesystem::path parent = std::filesystem::absolute(path / "..").lexically_normal();
  if (!is_folder(parent))
    fail<InputError>("{}: not there, and neither is the folder {}; correct the path", path.string(),
                     parent.string());
  fmt::print(stderr, "{}: no run has begun there yet; waiting for one (Ctrl-C ends this)\n",
             path.string());
  while (!has_begun(path)) std::this_thread::sleep_for(nap);
}

void print(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

/// Whether there will be more to see than in the summary. A run's own state decides: it may have
/// ended since `live` was read, and its final state is then shown once.
bool goes_on_after(const nlohmann::ordered_json& summary, bool live) {
  if (summary["kind"] == "run") return goes_on(summary);
  return live && summary["kind"] == "results";
}

/// Redraws a terminal at each interval. A log gets one line per interval. Logs and readers of JSON
/// get the last state at the end.
int watch(const InspectOptions& options) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const double interval_s = options.interval_s.value_or(terminal ? 1 : 10);
  wait_until_begun(options.path);
  for (bool live = is_live(options.path);; live = wait_while_live(options.path, interval_s)) {
    const auto summary = summarize(options.path);
    const bool more = goes_on_after(summary, live);
    if (options.json)
      print(fmt::format("{}\n", json_text(summary)));
    else if (terminal)
      print(fmt::format("\x1b[H\x1b[J{}", text_of(summary)));
    else
      print(more ? line_of(summary) : text_of(summary));
    if (!more) return 0;
  }
}

int inspect_command(const InspectOptions& options) {
  if (options.watch) return watch(options);
  const auto summary = summarize(options.path);
  print(options.json ? fmt::format("{}\n", json_text(summary, 2)) : text_of(summary));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App& inspect = command_line::add_command(
      app, "inspect",
      "Says what is in a prompt shard, a results file, a run's folder or a model's folder.",
      examples({
          "pecia inspect prompts/books.h5",
          "pecia inspect models/Qwen3-8B               # its layers, KV cache and legal grids",
          "pecia inspect runs/books                    # how a run stands, and which requests "
          "failed",
          "pecia inspect runs/books --watch            # until it ends; it need not have begun",
          "pecia inspect runs/books --json | jq '.results.failed_turns'",
      }),
      [options, &context] {
        context.chosen = [options, &context] {
          return on_first_rank(context.world, [&] { return inspect_command(*options); });
        };
      });
  const auto add = [&](const command_line::Option& option) { add_option(inspect, option); };
  add({.name = "path",
       .into = &options->path,
       .help = "The file or folder",
       .type = "PATH",
       .required = true});
  add({.name = "--json",
       .into = &options->json,
       .help = "JSON instead of text; with --watch one object a line"});
  add({.name = "--watch",
       .into = &options->watch,
       .help = "Again and again until the run has ended: drawn over on a terminal, else a line "
               "each time; waits for a folder that is not there yet"});
  add({.name = "--interval",
       .into = &options->interval_s,
       .help = "Seconds between two looks (default: 1 on a terminal, else 10)",
       .type = "SECONDS",
       .range = {{0.01, 86400.0}},
       .needs = "--watch"});
}

}  // namespace pecia::app
