#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "apps/pecia/summaries.hpp"
#include "lib/core/error.hpp"
#include "lib/io/hdf5.hpp"
#include "lib/io/results.hpp"

namespace pecia::app {
namespace {

constexpr size_t max_reasons = 10;

/// Reasons with the number of turns that failed for them, most frequent first.
nlohmann::ordered_json reasons(const std::map<std::string, int64_t>& counts) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  auto list = nlohmann::ordered_json::array();
  for (const auto& [reason, turns] : sorted) list.push_back({{"turns", turns}, {"error", reason}});
  return list;
}

}  // namespace

nlohmann::ordered_json summarize_results(const std::filesystem::path& path) {
  // Only the small datasets: what a turn may hold in log-probabilities is not read.
  const io::Hdf5File file = io::Hdf5File::open(path);
  const auto states = io::read_int64(file.dataset("/state"));
  const auto prompt_tokens = io::read_int32(file.dataset("/prompt_tokens"));
  const auto output_tokens = io::read_int32(file.dataset("/output_tokens"));
  const auto errors = io::read_text(file.dataset("/error"));
  for (const size_t rows : {prompt_tokens.size(), output_tokens.size(), errors.size()})
    if (rows != states.size())
      fail<InputError>("{}: /state has {} rows, another dataset {}; the file is damaged",
                       path.string(), states.size(), rows);

  std::array<int64_t, 4> turns{};
  std::map<std::string, int64_t> failures;
  int64_t prompt_sum = 0, output_sum = 0;
  for (size_t turn = 0; turn < states.size(); ++turn) {
    const int64_t state = states[turn];
    if (state < 0 || state >= static_cast<int64_t>(turns.size()))
      fail<InputError>("{}: /state[{}] is {}; the file is damaged", path.string(), turn, state);
    ++turns[state];
    if (state == static_cast<int64_t>(io::TurnState::open)) continue;
    prompt_sum += prompt_tokens[turn];
    output_sum += output_tokens[turn];
    if (state == static_cast<int64_t>(io::TurnState::failed)) ++failures[errors[turn]];
  }
  const auto count = [&](io::TurnState state) { return turns[static_cast<size_t>(state)]; };
  return {{"kind", "results"},
          {"path", path.string()},
          {"schema", file.text_attribute("schema").value_or("")},
          {"turns", states.size()},
          {"done", count(io::TurnState::done)},
          {"partial", count(io::TurnState::partial)},
          {"failed", count(io::TurnState::failed)},
          {"open", count(io::TurnState::open)},
          {"prompt_tokens", prompt_sum},
          {"output_tokens", output_sum},
          {"failures", reasons(failures)}};
}

std::string results_text(const nlohmann::ordered_json& summary) {
  const auto number = [&](const char* key) { return summary[key].get<int64_t>(); };
  std::string text = fmt::format("{}: results, {}\n", summary["path"].get<std::string>(),
                                 summary["schema"].get<std::string>());
  text += fmt::format("  {} turns: {} done, {} partial, {} failed, {} open\n", number("turns"),
                      number("done"), number("partial"), number("failed"), number("open"));
  text += fmt::format("  {} prompt tokens read, {} tokens generated\n", number("prompt_tokens"),
                      number("output_tokens"));
  const auto& failures = summary["failures"];
  for (size_t i = 0; i < std::min(failures.size(), max_reasons); ++i)
    text += fmt::format("  {} failed: {}\n", failures[i]["turns"].get<int64_t>(),
                        failures[i]["error"].get<std::string>());
  if (failures.size() > max_reasons)
    text += fmt::format("  and {} other reasons\n", failures.size() - max_reasons);
  return text;
}

}  // namespace pecia::app
