// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/pecia/printable.hpp"
#include "apps/pecia/summaries.hpp"
#include "lib/base/core/counted.hpp"
#include "lib/base/core/error.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/results/results.hpp"

namespace pecia::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t shown_reasons = 10, shown_failed = 20, shown_truncated = 5;
constexpr size_t shown_id_bytes = 120;

/// The columns of a results file that describe its turns. Log-probabilities, which may be large,
/// are not read.
struct Columns {
  explicit Columns(const io::Hdf5File& file)
      : states(io::read_int64(file.dataset("/state"))),
        ids(io::read_text(file.dataset("/request_id"))),
        shards(io::read_int32(file.dataset("/shard"))),
        requests(io::read_int64(file.dataset("/request"))),
        turns(io::read_int32(file.dataset("/turn"))),
        slot_offsets(io::read_int64(file.dataset("/slot_offsets"))),
        prompt_tokens(io::read_int32(file.dataset("/prompt_tokens"))),
        output_tokens(io::read_int32(file.dataset("/output_tokens"))),
        truncated_tokens(file.has("/truncated_tokens")  // earlier versions did not write it
                             ? io::read_int32(file.dataset("/truncated_tokens"))
                             : std::vector<int32_t>(states.size())),
        finish_reasons(io::read_enum(file.dataset("/finish_reason"))),
        errors(io::read_text(file.dataset("/error"))) {}

  void check(const std::string& path) const {
    for (const size_t rows : {ids.size(), shards.size(), requests.size(), turns.size(),
                              slot_offsets.size() - 1, prompt_tokens.size(), output_tokens.size(),
                              truncated_tokens.size(), finish_reasons.size(), errors.size()})
      if (rows != states.size())
        fail<InputError>("{}: /state has {} rows, another dataset {}; the file is damaged", path,
                         states.size(), rows);
    for (size_t turn = 0; turn < states.size(); ++turn)
      if (states[turn] < 0 || states[turn] > static_cast<int64_t>(io::TurnState::failed))
        fail<InputError>("{}: /state[{}] is {}; the file is damaged", path, turn, states[turn]);
  }

  io::TurnState state(size_t turn) const { return static_cast<io::TurnState>(states[turn]); }
  int64_t slots(size_t turn) const { return slot_offsets[turn + 1] - slot_offsets[turn]; }

  std::vector<int64_t> states;
  std::vector<std::string> ids;
  std::vector<int32_t> shards;
  std::vector<int64_t> requests;
  std::vector<int32_t> turns;
  std::vector<int64_t> slot_offsets;
  std::vector<int32_t> prompt_tokens, output_tokens, truncated_tokens;
  std::vector<uint8_t> finish_reasons;
  std::vector<std::string> errors;
};

/// Reasons with the number of turns that failed for each, the most frequent first.
Json reasons(const std::map<std::string, int64_t>& counts) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Json list = Json::array();
  for (const auto& [reason, turns] : sorted) list.push_back({{"turns", turns}, {"error", reason}});
  return list;
}

/// The state of a request from two parts: unfinished if one is, else failed if one is.
io::TurnState together(io::TurnState a, io::TurnState b) {
  for (const io::TurnState state :
       {io::TurnState::open, io::TurnState::partial, io::TurnState::failed})
    if (a == state || b == state) return state;
  return io::TurnState::done;
}

/// Counts requests by state.
Json requests_of(const Columns& columns) {
  std::map<std::pair<int32_t, int64_t>, io::TurnState> by_request;
  for (size_t turn = 0; turn < columns.states.size(); ++turn) {
    const auto [request, is_new] =
        by_request.try_emplace({columns.shards[turn], columns.requests[turn]}, columns.state(turn));
    if (!is_new) request->second = together(request->second, columns.state(turn));
  }
  int64_t done = 0, failed = 0;
  for (const auto& [request, state] : by_request) {
    done += state == io::TurnState::done;
    failed += state == io::TurnState::failed;
  }
  const auto total = static_cast<int64_t>(by_request.size());
  return {
      {"total", total}, {"done", done}, {"failed", failed}, {"unfinished", total - done - failed}};
}

/// "book-7", and "book-7, turn 2" for later turns; people count from 1, the file from 0.
std::string name_of(const Json& turn) {
  const auto number = turn["turn"].get<int64_t>();
  return printable(turn["request_id"].get<std::string>(), shown_id_bytes) +
         (number > 0 ? fmt::format(", turn {}", number + 1) : "");
}

/// One line for each of the first turns of a list, and one for the rest.
template <typename Line>
std::string listed(const Json& turns, size_t shown, const Line& line) {
  std::string text;
  for (size_t i = 0; i < std::min(turns.size(), shown); ++i)
    text += fmt::format("    {}: {}\n", name_of(turns[i]), line(turns[i]));
  if (turns.size() > shown)
    text += fmt::format("    … and {} more; --json lists all\n", turns.size() - shown);
  return text;
}

/// Failed turns with their reasons; counts of the reasons come first where not all turns are shown.
std::string failed_text(const Json& summary) {
  const Json &failed = summary["failed_turns"], &reasons = summary["failures"];
  if (failed.empty()) return "";
  std::string text = fmt::format("  {} failed:\n", failed.size());
  if (failed.size() > shown_failed) {
    for (size_t i = 0; i < std::min(reasons.size(), shown_reasons); ++i)
      text += fmt::format("    {} ×: {}\n", reasons[i]["turns"].get<int64_t>(),
                          printable(reasons[i]["error"].get<std::string>()));
    if (reasons.size() > shown_reasons)
      text += fmt::format("    and {} other reasons\n", reasons.size() - shown_reasons);
    text += "  which are\n";
  }
  return text + listed(failed, shown_failed, [](const Json& turn) {
           return printable(turn["error"].get<std::string>());
         });
}

/// Describes what limits cut from prompts and from answers.
std::string cut_text(const Json& summary) {
  const auto number = [&](const char* key) { return summary[key].get<int64_t>(); };
  std::string text;
  if (const int64_t turns = number("truncated_turns"); turns > 0) {
    text += fmt::format("  {} truncated by limits.over_length, {} left out:\n",
                        counted(turns, "prompt"), counted(number("truncated_tokens"), "token"));
    text += listed(summary["truncated"], shown_truncated, [](const Json& turn) {
      const auto run = turn["prompt_tokens"].get<int64_t>();
      const auto cut = turn["truncated_tokens"].get<int64_t>();
      return fmt::format("{} of {} tokens left out", cut, run + cut);
    });
  }
  const int64_t by_model = number("cut_by_model_length");
  if (const int64_t cut = number("cut_by_length") - by_model; cut > 0)
    text += fmt::format("  {} cut at max_new_tokens\n", counted(cut, "answer"));
  if (by_model > 0)
    text += fmt::format("  {} cut at the model's length\n", counted(by_model, "answer"));
  return text;
}

}  // namespace

Json summarize_results(const std::filesystem::path& path) {
  const io::Hdf5File file = io::Hdf5File::open(path);
  const Columns columns(file);
  columns.check(path.string());

  std::array<int64_t, 4> turns{};
  std::map<std::string, int64_t> failures;
  int64_t prompt_sum = 0, output_sum = 0, truncated_sum = 0;
  int64_t cut_by_length = 0, cut_by_model_length = 0;
  std::vector<int64_t> answers;
  Json failed = Json::array(), truncated = Json::array();
  for (size_t turn = 0; turn < columns.states.size(); ++turn) {
    const io::TurnState state = columns.state(turn);
    ++turns[static_cast<size_t>(state)];
    if (state == io::TurnState::open) continue;
    const int64_t output = columns.output_tokens[turn];
    // Most failed turns were refused, and their prompts were not read.
    if (state != io::TurnState::failed) prompt_sum += columns.prompt_tokens[turn];
    output_sum += output;
    const Json which{{"request_id", columns.ids[turn]}, {"turn", columns.turns[turn]}};
    if (state == io::TurnState::failed) {
      ++failures[columns.errors[turn]];
      failed.push_back(which);
      failed.back()["error"] = columns.errors[turn];
    }
    if (state != io::TurnState::done) continue;
    answers.push_back(output);
    if (columns.truncated_tokens[turn] > 0) {
      truncated_sum += columns.truncated_tokens[turn];
      truncated.push_back(which);
      truncated.back()["prompt_tokens"] = columns.prompt_tokens[turn];
      truncated.back()["truncated_tokens"] = columns.truncated_tokens[turn];
    }
    // A prompt that was only read has no answer to cut.
    if (output > 0 &&
        columns.finish_reasons[turn] == static_cast<uint8_t>(io::FinishReason::length)) {
      ++cut_by_length;
      cut_by_model_length += output < columns.slots(turn);
    }
  }
  const auto count = [&](io::TurnState state) { return turns[static_cast<size_t>(state)]; };
  Json summary{{"kind", "results"},
               {"path", path.string()},
               {"schema", file.text_attribute("schema").value_or("")},
               {"requests", requests_of(columns)},
               {"turns", columns.states.size()},
               {"done", count(io::TurnState::done)},
               {"partial", count(io::TurnState::partial)},
               {"failed", count(io::TurnState::failed)},
               {"open", count(io::TurnState::open)},
               {"prompt_tokens", prompt_sum},
               {"output_tokens", output_sum},
               {"truncated_turns", truncated.size()},
               {"truncated_tokens", truncated_sum},
               {"cut_by_length", cut_by_length},
               {"cut_by_model_length", cut_by_model_length},
               {"failures", reasons(failures)},
               {"failed_turns", failed},
               {"truncated", truncated}};
  std::sort(answers.begin(), answers.end());
  if (!answers.empty()) summary["answer_tokens"] = spread(answers);
  return summary;
}

std::string results_text(const Json& summary) {
  const auto number = [&](const char* key) { return summary[key].get<int64_t>(); };
  std::string text = fmt::format("{}: results, {}\n", printable(summary["path"].get<std::string>()),
                                 printable(summary["schema"].get<std::string>()));
  text += fmt::format("  {}: {} done, {} partial, {} failed, {} open\n",
                      counted(number("turns"), "turn"), number("done"), number("partial"),
                      number("failed"), number("open"));
  text += fmt::format("  {} read, {} generated\n", counted(number("prompt_tokens"), "prompt token"),
                      counted(number("output_tokens"), "token"));
  const auto& requests = summary["requests"];
  text += fmt::format("  {}: {} done, {} failed, {} unfinished\n",
                      counted(requests["total"].get<int64_t>(), "request"),
                      requests["done"].get<int64_t>(), requests["failed"].get<int64_t>(),
                      requests["unfinished"].get<int64_t>());
  if (summary.contains("answer_tokens"))
    text += fmt::format("  tokens per answer: {}\n", spread_text(summary["answer_tokens"]));
  text += cut_text(summary) + failed_text(summary);
  return text;
}

std::string results_line(const Json& summary) {
  const auto number = [&](const char* key) { return summary[key].get<int64_t>(); };
  const int64_t truncated = number("truncated_turns");
  return fmt::format("{} of {} done, {} failed, {} partial{}", number("done"),
                     counted(number("turns"), "turn"), number("failed"), number("partial"),
                     truncated > 0 ? fmt::format(", {} truncated", truncated) : "");
}

}  // namespace pecia::app
