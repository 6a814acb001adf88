// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/pecia/printable.hpp"
#include "apps/pecia/summaries.hpp"
#include "lib/base/core/counted.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/format.hpp"
#include "lib/files/disk/run_lock.hpp"
#include "lib/files/kv/kv_save.hpp"
#include "lib/files/results/journal.hpp"
#include "lib/work/batch/journals.hpp"

namespace pecia::app {
namespace {

using Json = nlohmann::ordered_json;

/// Reads a number from a file that another program may have changed; absent when it is missing.
std::optional<double> number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (json.is_null() || found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

Json with_age(Json progress) {
  if (progress.is_null()) return progress;
  const auto updated = number(progress, "updated_unix_s");
  const auto now = static_cast<double>(std::time(nullptr));
  progress["age_s"] = updated ? Json(std::max(0.0, now - *updated)) : Json();
  return progress;
}

Json figures_of(const Json& report) {
  if (report.is_null()) return nullptr;
  Json figures;
  for (const char* key : {"seconds", "counts", "phases", "exposed_communication", "errors"})
    figures[key] = report.contains(key) ? report[key] : Json();
  return figures;
}

Json json_of(const std::optional<io::RunHolder>& holder) {
  if (!holder) return nullptr;
  return {{"host", holder->host},
          {"pid", holder->pid},
          {"started", holder->started},
          {"command", holder->command}};
}

const char* state_of(const std::optional<io::RunHolder>& holder, const Json& results) {
  if (holder && holder->dead) return "killed";
  if (results.is_null()) return "starting";
  if (holder) return "running";
  return results["open"] == 0 && results["partial"] == 0 ? "finished" : "stopped";
}

std::string speeds_text(const Json& progress) {
  const auto tokens_per_s = [&](const char* key) {
    return report::format_count(number(progress, key).value_or(-1));
  };
  const auto left = number(progress, "remaining_s");
  return fmt::format("{} of the work · prefill {} tok/s · decode {} tok/s · {}",
                     report::format_percent(number(progress, "work_share").value_or(-1)),
                     tokens_per_s("prefill_tokens_per_s"), tokens_per_s("decode_tokens_per_s"),
                     left ? report::format_duration(*left) + " left" : "time left unknown");
}

std::string news_text(const Json& progress) {
  const auto age = number(progress, "age_s");
  return age ? report::format_duration(*age) + " ago" : "at an unknown time";
}

/// Counts the prompts of which a stopped run has kept the keys and values.
Json kept_kv(const std::filesystem::path& folder) {
  int64_t requests = 0, tokens = 0, bytes = 0;
  std::error_code unreachable;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "kv", unreachable)) {
    try {
      const auto save = io::read_kv_save(entry.path());
      if (!save) continue;
      ++requests;
      tokens += save->tokens;
      bytes += save->bytes;
    } catch (const InputError&) {
      // The next start of the run names this file, and reads the prompt again.
    }
  }
  return {{"requests", requests}, {"tokens", tokens}, {"bytes", bytes}};
}

/// Counts the journals whose rows a running or killed run has in part not brought into the results.
Json journals(const std::filesystem::path& folder) {
  const auto journal_folder = batch::journal_folder(folder);
  int64_t files = 0, bytes = 0;
  for (const io::JournalName& name : io::journals_in(journal_folder)) {
    std::error_code gone;
    const auto size = std::filesystem::file_size(journal_folder / io::file_name(name), gone);
    if (gone) continue;
    ++files;
    bytes += static_cast<int64_t>(size);
  }
  return {{"files", files}, {"bytes", bytes}};
}

/// The part of the run's work, as `results` tell, that would survive a kill at this moment.
Json durable(const Json& results, const Json& kept) {
  const auto count = [&](const char* key) {
    return results.is_null() ? 0 : results[key].get<int64_t>();
  };
  return {{"settled_turns", count("done") + count("failed")},
          {"output_tokens", count("output_tokens")},
          {"kept_tokens", kept["tokens"]}};
}

}  // namespace

bool goes_on(const nlohmann::ordered_json& run_summary) {
  return run_summary["state"] == "starting" || run_summary["state"] == "running";
}

nlohmann::ordered_json summarize_run(const std::filesystem::path& folder) {
  const std::filesystem::path results_path = folder / "results.h5";
  const auto holder = io::run_holder(folder);
  std::error_code unreachable;
  const bool begun = std::filesystem::exists(results_path, unreachable);
  if (!begun && !holder)
    fail<InputError>("{}: a folder without results.h5: no run has begun in it", folder.string());
  const Json results = begun ? summarize_results(results_path) : Json();
  const Json kept = kept_kv(folder);
  return {{"kind", "run"},
          {"path", folder.string()},
          {"state", state_of(holder, results)},
          {"holder", json_of(holder)},
          {"results", results},
          {"kept_kv", kept},
          {"journals", journals(folder)},
          {"durable", durable(results, kept)},
          {"progress", with_age(read_json_object(folder / "progress.json"))},
          {"report", figures_of(read_json_object(folder / "report.json"))}};
}

std::string run_text(const nlohmann::ordered_json& summary) {
  std::string text = fmt::format("{}: run, {}", printable(summary["path"].get<std::string>()),
                                 summary["state"].get<std::string>());
  if (const Json& holder = summary["holder"]; !holder.is_null())
    text += fmt::format(", process {} on {} since {}", holder["pid"].get<int64_t>(),
                        printable(holder["host"].get<std::string>()),
                        printable(holder["started"].get<std::string>()));
  text += '\n';
  if (const Json& progress = summary["progress"]; goes_on(summary) && !progress.is_null())
    text += fmt::format("  {} (told {})\n", speeds_text(progress), news_text(progress));
  if (summary["state"] == "stopped" || summary["state"] == "killed")
    text += "  the same command continues it\n";
  if (const auto seconds = number(summary["report"], "seconds"); seconds && !goes_on(summary))
    text += fmt::format("  its last start took {}\n", report::format_duration(*seconds));
  if (const Json& kept = summary["kept_kv"]; kept["requests"] > 0)
    text += fmt::format("  keys and values of {} are kept: {}, {}\n",
                        counted(kept["requests"].get<int64_t>(), "unfinished request"),
                        counted(kept["tokens"].get<int64_t>(), "token"),
                        report::format_bytes(kept["bytes"].get<int64_t>()));
  if (const Json& left = summary["journals"]; left["files"] > 0 && !goes_on(summary))
    text += fmt::format("  left by replicas: {} ({}), which the next start brings in\n",
                        counted(left["files"].get<int64_t>(), "journal"),
                        report::format_bytes(left["bytes"].get<int64_t>()));
  if (!summary["results"].is_null()) text += results_text(summary["results"]);
  return text;
}

std::string run_line(const nlohmann::ordered_json& summary) {
  const Json& results = summary["results"];
  std::string line = summary["state"].get<std::string>();
  if (!results.is_null()) line += " · " + results_line(results);
  const Json& progress = summary["progress"];
  if (!goes_on(summary) || progress.is_null()) return line;
  return fmt::format("{} · {}", line, speeds_text(progress));
}

}  // namespace pecia::app
