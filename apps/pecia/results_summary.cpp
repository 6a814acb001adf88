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

/// Of two parts of a request: unfinished if one is, else failed if one is.
io::TurnState together(io::TurnState a, io::TurnState b) {
  for (const io::TurnState state :
       {io::TurnState::open, io::TurnState::partial, io::TurnState::failed})
    if (a == state || b == state) return state;
  return io::TurnState::done;
}

}  // namespace

nlohmann::ordered_json summarize_results(const std::filesystem::path& path) {
  // Only the small datasets: what a turn may hold in log-probabilities is not read.
  const io::Hdf5File file = io::Hdf5File::open(path);
  const auto states = io::read_int64(file.dataset("/state"));
  const auto prompt_tokens = io::read_int32(file.dataset("/prompt_tokens"));
  const auto output_tokens = io::read_int32(file.dataset("/output_tokens"));
  const auto shards = io::read_int32(file.dataset("/shard"));
  const auto requests = io::read_int64(file.dataset("/request"));
  const auto errors = io::read_text(file.dataset("/error"));
  for (const size_t rows :
       {prompt_tokens.size(), output_tokens.size(), errors.size(), shards.size(), requests.size()})
    if (rows != states.size())
      fail<InputError>("{}: /state has {} rows, another dataset {}; the file is damaged",
                       path.string(), states.size(), rows);

  std::array<int64_t, 4> turns{};
  std::map<std::string, int64_t> failures;
  int64_t prompt_sum = 0, output_sum = 0;
  std::vector<int64_t> answers;
  std::map<std::pair<int32_t, int64_t>, io::TurnState> by_request;
  for (size_t turn = 0; turn < states.size(); ++turn) {
    const int64_t state = states[turn];
    if (state < 0 || state >= static_cast<int64_t>(turns.size()))
      fail<InputError>("{}: /state[{}] is {}; the file is damaged", path.string(), turn, state);
    ++turns[state];
    const auto [request, is_new] =
        by_request.try_emplace({shards[turn], requests[turn]}, static_cast<io::TurnState>(state));
    if (!is_new) request->second = together(request->second, static_cast<io::TurnState>(state));
    if (state == static_cast<int64_t>(io::TurnState::open)) continue;
    // A turn that failed was refused, mostly, and its prompt not read.
    if (state != static_cast<int64_t>(io::TurnState::failed)) prompt_sum += prompt_tokens[turn];
    output_sum += output_tokens[turn];
    if (state == static_cast<int64_t>(io::TurnState::failed)) ++failures[errors[turn]];
    if (state == static_cast<int64_t>(io::TurnState::done)) answers.push_back(output_tokens[turn]);
  }
  const auto count = [&](io::TurnState state) { return turns[static_cast<size_t>(state)]; };
  const auto requests_in = [&](io::TurnState state) {
    return std::count_if(by_request.begin(), by_request.end(),
                         [&](const auto& request) { return request.second == state; });
  };
  const auto done = requests_in(io::TurnState::done), failed = requests_in(io::TurnState::failed);
  nlohmann::ordered_json summary{
      {"kind", "results"},
      {"path", path.string()},
      {"schema", file.text_attribute("schema").value_or("")},
      {"requests",
       {{"total", by_request.size()},
        {"done", done},
        {"failed", failed},
        {"unfinished", static_cast<int64_t>(by_request.size()) - done - failed}}},
      {"turns", states.size()},
      {"done", count(io::TurnState::done)},
      {"partial", count(io::TurnState::partial)},
      {"failed", count(io::TurnState::failed)},
      {"open", count(io::TurnState::open)},
      {"prompt_tokens", prompt_sum},
      {"output_tokens", output_sum},
      {"failures", reasons(failures)}};
  std::sort(answers.begin(), answers.end());
  if (!answers.empty()) summary["answer_tokens"] = spread(answers);
  return summary;
}

std::string results_text(const nlohmann::ordered_json& summary) {
  const auto number = [&](const char* key) { return summary[key].get<int64_t>(); };
  std::string text = fmt::format("{}: results, {}\n", summary["path"].get<std::string>(),
                                 summary["schema"].get<std::string>());
  text += fmt::format("  {} turns: {} done, {} partial, {} failed, {} open\n", number("turns"),
                      number("done"), number("partial"), number("failed"), number("open"));
  text += fmt::format("  {} prompt tokens read, {} tokens generated\n", number("prompt_tokens"),
                      number("output_tokens"));
  const auto& requests = summary["requests"];
  text += fmt::format("  {} requests: {} done, {} failed, {} unfinished\n",
                      requests["total"].get<int64_t>(), requests["done"].get<int64_t>(),
                      requests["failed"].get<int64_t>(), requests["unfinished"].get<int64_t>());
  if (summary.contains("answer_tokens"))
    text += fmt::format("  tokens per answer: {}\n", spread_text(summary["answer_tokens"]));
  const auto& failures = summary["failures"];
  for (size_t i = 0; i < std::min(failures.size(), max_reasons); ++i)
    text += fmt::format("  {} failed: {}\n", failures[i]["turns"].get<int64_t>(),
                        failures[i]["error"].get<std::string>());
  if (failures.size() > max_reasons)
    text += fmt::format("  and {} other reasons\n", failures.size() - max_reasons);
  return text;
}

std::string results_line(const nlohmann::ordered_json& summary) {
  const auto number = [&](const char* key) { return summary[key].get<int64_t>(); };
  return fmt::format("{} of {} turns done, {} failed, {} partial", number("done"), number("turns"),
                     number("failed"), number("partial"));
}

}  // namespace pecia::app
