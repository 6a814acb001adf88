// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/carry_over.hpp"

#include <algorithm>
#include <map>

#include "lib/base/core/counted.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/escaped.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/work/batch/identity.hpp"

namespace pecia::batch {
namespace {

using Fate = Continuation::Fate;

std::filesystem::path new_file(const std::filesystem::path& results) {
  return results.string() + ".new";
}

/// The index of `settings` in the list; new settings are added to it.
int32_t index_of(const std::string& settings, std::vector<std::string>& list) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const std::string& known) {
    return settings_difference(known, settings).empty();
  });
  const auto index = static_cast<int32_t>(found - list.begin());
  if (found == list.end()) list.push_back(settings);
  return index;
}

void require_same_turns(const io::ResultsLayout& before, const io::ResultsLayout& now,
                        const std::filesystem::path& path) {
  const auto key = [](const io::ResultTurn& turn) {
    return std::tie(turn.request_id, turn.shard, turn.request, turn.turn);
  };
  if (before.turns.size() > now.turns.size())
    fail<InputError>(
        "{} has {}, and the inputs have {} now: raise batch.limit (--limit) to what the earlier "
        "start had, or leave it out; without it, the file is damaged",
        path.string(), counted(std::ssize(before.turns), "turn"), now.turns.size());
  for (size_t row = 0; row < before.turns.size(); ++row)
    if (row >= now.turns.size() || key(before.turns[row]) != key(now.turns[row]))
      fail<InputError>(
          "{}: row {} is request '{}', which the inputs do not say: the file is damaged",
          path.string(), row, escaped(before.turns[row].request_id));
}

/// Throws InputError where an answer that a turn of an unfinished request goes on from, or its own,
/// is damaged.
void require_whole_answers(const io::ResultsFile& old, const std::vector<io::TurnState>& states,
                           const std::vector<Fate>& fates) {
  const auto& turns = old.layout().turns;
  for (size_t begin = 0, end = 0; begin < turns.size(); begin = end) {
    bool goes_on = false;
    for (end = begin; end < turns.size() && turns[end].shard == turns[begin].shard &&
                      turns[end].request == turns[begin].request;
         ++end)
      goes_on = goes_on || fates[end] == Fate::opened || states[end] == io::TurnState::open ||
                states[end] == io::TurnState::partial;
    for (size_t row = begin; goes_on && row < end; ++row)
      if (fates[row] != Fate::opened && states[row] != io::TurnState::open)
        static_cast<void>(old.tokens(static_cast<int64_t>(row)));
  }
}

std::string turns_text(int64_t count) {
  return counted(count, "turn");
}

/// "the 3 turns that are not done", "1 of the 3 turns that are not done; the others …".
std::string holders_text(int64_t holds, int64_t turns) {
  const std::string all =
      fmt::format("the {} that {} not done", turns_text(turns), turns == 1 ? "is" : "are");
  if (holds == turns) return all;
  if (holds == 0)
    return fmt::format("0 of {}, which {} not depend on it", all, turns == 1 ? "does" : "do");
  return fmt::format("{} of {}; the others do not depend on it", holds, all);
}

/// Says how the settings differ from those under which the remaining turns were to be run, and for
/// how many of these it matters. `concerned`: rows by their settings.
void remark_settings(const io::ResultsFile& old, const std::string& now,
                     const std::map<int32_t, std::vector<int64_t>>& concerned,
                     const DependsOn& depends_on, std::vector<std::string>& remarks) {
  for (const auto& [index, rows] : concerned)
    for (const SettingsDifference& of : settings_difference(old.layout().settings[index], now)) {
      const int64_t holds = std::ranges::count_if(
          rows, [&](int64_t row) { return !depends_on || depends_on(of.key, row); });
      remarks.push_back(fmt::format("the job differs from the earlier start in {}: it holds for {}",
                                    of.text, holders_text(holds, std::ssize(rows))));
    }
}

bool same_layout(const io::ResultsLayout& a, const io::ResultsLayout& b) {
  return std::equal(a.turns.begin(), a.turns.end(), b.turns.begin(), b.turns.end(),
                    [&](const io::ResultTurn& x, const io::ResultTurn& y) {
                      return x.slots == y.slots && x.settings == y.settings &&
                             x.vectors == y.vectors && x.scores == y.scores &&
                             x.score_tokens == y.score_tokens &&
                             (a.prompt_logprobs == 0 || x.prompt_tokens == y.prompt_tokens);
                    });
}

/// Turns a partial answer into a finished one of `tokens` tokens.
io::TurnResult ended_at(io::TurnResult result, int64_t tokens) {
  const size_t before = std::max<size_t>(1, result.tokens.size());
  const auto cut = [&](auto& values) { values.resize(values.size() / before * tokens); };
  cut(result.token_logprobs), cut(result.top_tokens), cut(result.top_logprobs);
  result.tokens.resize(tokens);
  result.finish_reason = io::FinishReason::length;
  return result;
}

/// Collects rows and writes them together, at most about 64 MiB at a time.
class Copier {
 public:
  explicit Copier(io::ResultsFile& to) : to_(to) {}

  void add(int64_t row, io::TurnResult result, io::TurnState state) {
    constexpr int64_t most_values = 16 << 20, most_rows = 4096;
    values_ += std::ssize(result.top_logprobs) + std::ssize(result.prompt_top_logprobs) +
               std::ssize(result.tokens) + std::ssize(result.prompt_logprobs) +
               std::ssize(result.vectors) + std::ssize(result.score_logprobs);
    rows_.push_back({row, std::move(result), state});
    if (values_ > most_values || std::ssize(rows_) >= most_rows) flush();
  }

  void flush() {
    std::vector<io::TurnUpdate> updates;
    for (const Row& row : rows_) updates.push_back({row.row, row.result, row.state});
    to_.write_all(updates);
    rows_.clear();
    values_ = 0;
  }

 private:
  struct Row {
    int64_t row;
    io::TurnResult result;
    io::TurnState state;
  };

  io::ResultsFile& to_;
  std::vector<Row> rows_;
  int64_t values_ = 0;
};

void copy_rows(const io::ResultsFile& old, const Continuation& next, io::ResultsFile& to) {
  Copier copier(to);
  for (size_t i = 0; i < next.fates.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    if (next.fates[i] == Fate::opened || old.state(row) == io::TurnState::open) continue;
    if (next.fates[i] == Fate::ended)
      copier.add(row, ended_at(old.read(row), next.layout.turns[i].slots), io::TurnState::done);
    else
      copier.add(row, old.read(row), old.state(row));
  }
  copier.flush();
}

}  // namespace

Continuation continuation(const io::ResultsFile& old, const io::ResultsLayout& wanted,
                          bool retry_failed, const std::filesystem::path& path,
                          const DependsOn& depends_on) {
  const io::ResultsLayout& before = old.layout();
  require_same_identity(before, wanted, path);
  require_same_turns(before, wanted, path);
  PECIA_CHECK(wanted.settings.size() == 1, "{} settings of one start", wanted.settings.size());
  const std::string& now = wanted.settings.front();

  Continuation next;
  next.layout = wanted;
  next.layout.settings = before.settings;
  const int32_t index = index_of(now, next.layout.settings);
  for (io::ResultTurn& turn : next.layout.turns) turn.settings = index;
  std::map<int32_t, std::vector<int64_t>> concerned;
  int64_t started_over = 0;
  const std::vector<io::TurnState> states = old.states();
  for (int64_t row = 0; row < old.num_turns(); ++row) {
    const io::TurnState state = states[row];
    const io::ResultTurn& was = before.turns[row];
    io::ResultTurn& turn = next.layout.turns[row];
    Fate& fate = next.fates.emplace_back(Fate::kept);
    if (state == io::TurnState::done || (state == io::TurnState::failed && !retry_failed)) {
      turn = was;
      continue;
    }
    if (was.settings != index) concerned[was.settings].push_back(row);
    if (state == io::TurnState::failed) fate = Fate::opened;
    if (state != io::TurnState::partial || was.settings == index) continue;
    if (was.prompt_tokens != turn.prompt_tokens || !may_go_on(before.settings[was.settings], now)) {
      fate = Fate::opened;
      ++started_over;
    } else if (old.output_tokens(row) >= turn.slots) {
      fate = Fate::ended;
    }
  }
  require_whole_answers(old, states, next.fates);
  next.same_file = same_layout(before, next.layout);
  if (!knows_weights(before.identity))
    next.warnings.push_back(
        fmt::format("{} does not say which contents the weights had at the earlier start, because "
                    "another version of pecia made it: if the model's files were replaced since "
                    "then, start over with --fresh",
                    path.string()));
  remark_settings(old, now, concerned, depends_on, next.remarks);
  if (started_over > 0)
    next.remarks.push_back(fmt::format("{} under way {} over: their prompts are others now",
                                       turns_text(started_over),
                                       started_over == 1 ? "starts" : "start"));
  const size_t new_inputs =
      wanted.inputs.size() - std::min(wanted.inputs.size(), before.inputs.size());
  if (wanted.turns.size() > before.turns.size())
    next.remarks.push_back(
        fmt::format("the job has {} more than at the earlier start, from {}",
                    turns_text(std::ssize(wanted.turns) - std::ssize(before.turns)),
                    counted(static_cast<int64_t>(new_inputs), "new input file")));
  return next;
}

void carry_over(const io::ResultsFile& old, const Continuation& next,
                const std::filesystem::path& path) {
  remove_unfinished_carry_over(path);
  const std::filesystem::path made = new_file(path);
  try {
    io::ResultsFile::create(made, next.layout);
    io::ResultsFile to(made);
    copy_rows(old, next, to);
  } catch (...) {
    remove_unfinished_carry_over(path);
    throw;
  }
  std::error_code error;
  std::filesystem::rename(made, path, error);
  if (error)
    fail<SystemError>("{} cannot be renamed to {}: {}", made.string(), path.string(),
                      error.message());
  io::sync_folder(path.parent_path());
}

void remove_unfinished_carry_over(const std::filesystem::path& path) {
  std::error_code ignored;
  for (const char* suffix : {"", ".unfinished"})
    std::filesystem::remove(new_file(path).string() + suffix, ignored);
}

}  // namespace pecia::batch
