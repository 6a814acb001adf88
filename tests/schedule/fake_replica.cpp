// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/fake_replica.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <deque>
#include <fstream>
#include <numeric>

#include "lib/base/core/random.hpp"
#include "lib/ranks/parallel/state_route.hpp"
#include "tests/schedule/journal_replay.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {

using batch::Finished;
using batch::Request;
using batch::Turn;
using schedule::LogProbs;
using schedule::Outcome;
using schedule::Plan;
using schedule::SchedulerLimits;

namespace {

uint64_t digest(std::span<const int32_t> history, uint64_t key) {
  for (const int32_t token : history) key = mix(key, static_cast<uint64_t>(token));
  return key;
}

/// The row of top log-probabilities that belongs to a log-probability.
void append_tops(float log_prob, int32_t token, int wanted, int64_t vocab,
                 std::vector<int32_t>& top_tokens, std::vector<float>& top_logprobs) {
  const int64_t width = wanted < 0 ? vocab : wanted;
  for (int64_t i = 0; i < width; ++i) {
    if (wanted > 0) top_tokens.push_back(token + static_cast<int32_t>(i));
    top_logprobs.push_back(log_prob - static_cast<float>(i));
  }
}

/// NaN equals NaN; everything else bit by bit.
bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return (std::isnan(x) && std::isnan(y)) ||
           std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

}  // namespace

int32_t next_token(std::span<const int32_t> history, uint64_t random_key) {
  const uint64_t hash = digest(history, random_key);
  return hash % 13 == 0 ? stop_token : 5 + static_cast<int32_t>(hash % 91);
}

std::shared_ptr<const io::Detokenizer> fake_detokenizer() {
  static const auto detokenizer = [] {
    const TempFolder folder;
    std::string special, texts;
    const auto add = [](std::string& list, const std::string& entry) {
      list += (list.empty() ? "" : ", ") + entry;
    };
    for (int id = 0; id < 5; ++id)
      add(special, fmt::format(R"({{"id": {}, "content": "<{}>", "special": true}})", id, id));
    for (int id = 5; id < 100; ++id) {
      std::string text;  // id - 4 in digits of 1 to 4
      for (int rest = id - 4; rest > 0; rest = (rest - 1) / 4)
        text += std::array{"a", "b", "x", "Ã©"}[(rest - 1) % 4];
      add(texts, fmt::format(R"("{}": {})", text, id));
    }
    std::ofstream(folder / "tokenizer.json") << fmt::format(
        R"({{"added_tokens": [{}], "decoder": {{"type": "ByteLevel"}}, "model": {{"vocab": {{{}}}}}}})",
        special, texts);
    return std::make_shared<const io::Detokenizer>(folder / "tokenizer.json");
  }();
  return detokenizer;
}

float log_prob(std::span<const int32_t> history, int32_t token) {
  return -static_cast<float>(mix(digest(history, 0), static_cast<uint64_t>(token)) >> 44);
}

void append(LogProbs& found, size_t which, std::span<const int32_t> history, int32_t token,
            int wanted, int64_t vocab) {
  found.which.push_back(static_cast<int32_t>(which));
  found.logprobs.push_back(log_prob(history, token));
  append_tops(found.logprobs.back(), token, wanted, vocab, found.top_tokens, found.top_logprobs);
}

FakeReplica::FakeReplica(const SchedulerLimits& limits) : limits_(limits), map_(limits.ring_size) {}

void FakeReplica::begin(const Plan& plan) {
  for (const auto& [sequence, length] : plan.shortened) {
    map_.shorten(sequence, length);
    tokens_.at(sequence).resize(length);
    if (limits_.has_states) go_back(sequence, length);
  }
  for (const int64_t sequence : plan.removed) {
    map_.remove(sequence);
    tokens_.erase(sequence);
    turns_.erase(sequence);
    states_.erase(sequence), kept_.erase(sequence);
  }
  for (const int64_t sequence : plan.parked) map_.park(sequence);
  for (const auto& [sequence, reserved] : plan.returned) map_.bring_back(sequence, reserved);
  for (const auto& [sequence, reserved] : plan.grown)
    for (int instance = 0; instance < limits_.ring_size; ++instance)
      map_.set_reserved(sequence, instance, reserved[instance]);
  for (int instance = 0; instance < limits_.ring_size; ++instance)
    PECIA_CHECK(map_.total_reserved(instance) <= limits_.kv_tokens, "{} slots reserved of {}",
                map_.total_reserved(instance), limits_.kv_tokens);
  for (const auto& added : plan.added) {
    const bool child = added.state.parent != schedule::NewSequence::no_parent;
    map_.add(added.sequence, added.state.reserved,
             child ? std::optional(added.state.parent) : std::nullopt);
    tokens_[added.sequence] = child ? tokens_.at(added.state.parent) : std::vector<int32_t>{};
    for (int instance = 0; instance < limits_.ring_size; ++instance)
      PECIA_CHECK(map_.total_reserved(instance) <= limits_.kv_tokens, "{} slots reserved of {}",
                  map_.total_reserved(instance), limits_.kv_tokens);
  }
  for (const auto& turn : plan.turns) turns_[turn.sequence] = turn;
}

/// A sequence without tokens of its own goes on with its parent's state.
void FakeReplica::go_back(int64_t sequence, int64_t length) {
  const auto parent = map_.parent(sequence);
  if (parent && map_.length(*parent) == length) {
    states_.erase(sequence);
    return;
  }
  states_.at(sequence) = kept_.at(sequence);
  const State found{length, map_.state_holder(sequence)};
  PECIA_CHECK(states_.at(sequence) == found, "sequence {} has a state after {} tokens, not {}",
              sequence, states_.at(sequence).length, length);
}

/// Checks that the state is that before the rows, where the map says.
void FakeReplica::cache(const schedule::PlanItem& item, const parallel::Team& team) {
  if (!limits_.has_states) return map_.append(item.rows, team);
  const int64_t sequence = item.rows.sequence;
  kept_.erase(sequence);
  if (const auto state = states_.find(sequence); state != states_.end()) {
    const State found{item.rows.first, map_.state_holder(sequence)};
    PECIA_CHECK(state->second == found, "the state of sequence {} is after {} tokens, not {}",
                sequence, state->second.length, item.rows.first);
    if (parallel::may_be_shortened(item.rows)) kept_[sequence] = found;
  }
  map_.append(item.rows, team);
  states_[sequence] = {item.rows.first + item.rows.count, map_.state_holder(sequence)};
}

std::vector<Outcome> FakeReplica::execute(const Plan& plan) {
  begin(plan);
  PECIA_CHECK(!plan.items.empty(), "an empty pass");
  PECIA_CHECK(static_cast<int64_t>(plan.items.size()) <= limits_.max_sequences,
              "{} sequences in a pass", plan.items.size());
  for (const auto& item : plan.items) {
    cache(item, plan.teams.at(item.team));
    auto& tokens = tokens_.at(item.rows.sequence);
    PECIA_CHECK(static_cast<int64_t>(item.tokens.size()) == item.rows.count,
                "{} tokens for {} rows", item.tokens.size(), item.rows.count);
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    PECIA_CHECK(static_cast<int64_t>(tokens.size()) <= limits_.max_positions, "{} positions",
                tokens.size());
  }
  std::vector<Outcome> outcomes(limits_.ring_size);
  const bool restored = !plan.restore.empty() && plan.restore != damaged_save;
  for (auto& outcome : outcomes) {
    outcome.kv.done = restored ? 1 : 0;
    if (!restored) outcome.compute_s = 0.5, outcome.comm_s = 0.25;
  }
  PECIA_CHECK(plan.restore.empty() || (plan.items.size() == 1 && plan.targets.empty() &&
                                       plan.items.front().sampled_index < 0),
              "a pass that is restored and asks for something");
  size_t sample = 0;
  for (const auto& item : plan.items) {
    // All rows of a sequence are rotated by the same length, which no row is beyond.
    const int64_t longest = longest_.try_emplace(item.rows.sequence, item.longest).first->second;
    PECIA_CHECK(item.longest == longest && longest >= item.rows.first + item.rows.count,
                "{} positions at most, and {} before", item.longest, longest);
    if (item.sampled_index < 0) continue;
    const auto& tokens = tokens_.at(item.rows.sequence);
    const auto& turn = turns_.at(item.rows.sequence);
    PECIA_CHECK(turn.answer_begin + item.sampled_index == item.first_sampled() + 1 &&
                    item.prompt_end == turn.answer_begin,
                "token {} of an answer from {} on is sampled after {}", item.sampled_index,
                turn.answer_begin, item.first_sampled() + 1);
    for (int64_t position = item.first_sampled(); position < item.rows.first + item.rows.count;
         ++position) {
      const auto before = std::span(tokens).first(position + 1);
      LogProbs& found = outcomes[row_owner(item.rows, limits_.ring_size, position)].sampled;
      found.tokens.push_back(next_token(before, turn.random_key));
      append(found, sample++, before, found.tokens.back(), limits_.logprobs, limits_.vocab);
    }
  }
  for (size_t i = 0; i < plan.targets.size(); ++i) {
    const auto& target = plan.targets[i];
    const auto& rows = plan.items.at(target.item).rows;
    append(outcomes[row_owner(rows, limits_.ring_size, target.position)].targets, i,
           std::span(tokens_.at(rows.sequence)).first(target.position + 1), target.token,
           limits_.prompt_logprobs, limits_.vocab);
  }
  return outcomes;
}

Served serve(const SchedulerLimits& limits, std::vector<Request> requests, int64_t max_passes,
             std::vector<int64_t> arrivals) {
  schedule::Scheduler scheduler(limits);
  FakeReplica replica(limits);
  Served served;
  JournalReplay journal;
  double now = 0;
  const auto take = [&] {
    for (Finished& finished : scheduler.take_finished()) {
      served.finished_at[finished.row] = now;
      const int64_t row = finished.row;
      PECIA_CHECK(served.rows.emplace(row, std::move(finished)).second, "row {} is recorded twice",
                  row);
    }
  };
  arrivals.resize(requests.size(), 0);
  int64_t most_passes = 1000 + std::accumulate(arrivals.begin(), arrivals.end(), int64_t{0});
  for (const Request& request : requests)
    for (const Turn& turn : request.turns)
      most_passes += 2 * static_cast<int64_t>(turn.tokens.size()) + 2 * turn.max_new_tokens;
  if (limits.on_demand) most_passes *= 4;  // what is forgotten is read again
  const auto add_arrived = [&](int64_t pass) {
    for (size_t i = 0; i < requests.size(); ++i)
      if (arrivals[i] == pass) scheduler.add(requests[i], now);
  };
  struct UnderWay {
    Plan plan;
    std::vector<Outcome> outcomes;
  };
  std::deque<UnderWay> under_way;  // where plans overlap
  const auto commit = [&] {
    const auto [plan, outcomes] = std::move(under_way.front());
    under_way.pop_front();
    now += 1 + static_cast<double>(plan.number % 3);
    scheduler.commit(plan, outcomes, now);
    scheduler.verify();
    take();
  };
  const int64_t last_arrival =
      arrivals.empty() ? 0 : *std::max_element(arrivals.begin(), arrivals.end());
  for (int64_t pass = 0; static_cast<int64_t>(served.plans.size()) < max_passes; ++pass) {
    add_arrived(pass);
    take();
    auto plan = scheduler.next(now);
    for (; !plan && !under_way.empty(); plan = scheduler.next(now)) {
      commit();
      ++served.waits;
    }
    PECIA_CHECK(scheduler.running() <= limits.max_sequences, "{} sequences run",
                scheduler.running());
    take();
    if (!plan && pass < last_arrival) continue;
    served.sharing = scheduler.sharing();
    if (!plan) {
      journal.check_end(scheduler);
      return served;
    }
    journal.take(scheduler.take_yields(), *plan, false);
    served.plans.push_back(*plan);
    served.chunk_rings.push_back(scheduler.chunk_rings());
    PECIA_CHECK(plan->number < most_passes, "{} passes and no end", plan->number);
    under_way.push_back({*plan, replica.execute(*plan)});
    served.most_under_way = std::max(served.most_under_way, std::ssize(under_way));
    if (!limits.overlaps()) commit();
  }
  while (!under_way.empty()) commit();
  served.partial = scheduler.partial();
  served.keepable = scheduler.keepable();
  return served;
}

namespace {

/// Answers of one request, by the definition of its followup.
class Expectation {
 public:
  Expectation(const SchedulerLimits& limits, std::map<int64_t, Finished>& rows)
      : limits_(limits), rows_(rows) {}

  void fail(const Turn& turn, const std::string& why) const {
    Finished& failed = rows_[turn.row] = {turn.row, io::TurnState::failed, {}};
    failed.result.finish_reason = io::FinishReason::failed;
    failed.result.error = why;
    failed.result.prompt_tokens = static_cast<int32_t>(turn.tokens.size());
  }

  /// Appends the turn and its answer to `history`; false when it cannot run.
  bool answer(const Turn& turn, std::vector<int32_t>& history) const {
    Finished finished{turn.row, io::TurnState::done, {}};
    io::TurnResult& result = finished.result;
    result.cached_tokens = static_cast<int32_t>(history.size());
    result.prompt_tokens = static_cast<int32_t>(turn.tokens.size());
    for (const int32_t token : turn.tokens) {
      if (limits_.prompt_logprobs != 0 && history.empty()) {
        append_tops(std::nanf(""), token, limits_.prompt_logprobs, limits_.vocab,
                    result.prompt_top_tokens, result.prompt_top_logprobs);
        std::fill(result.prompt_top_tokens.begin(), result.prompt_top_tokens.end(), -1);
        result.prompt_logprobs.push_back(std::nanf(""));
      } else if (limits_.prompt_logprobs != 0) {
        result.prompt_logprobs.push_back(log_prob(history, token));
        append_tops(result.prompt_logprobs.back(), token, limits_.prompt_logprobs, limits_.vocab,
                    result.prompt_top_tokens, result.prompt_top_logprobs);
      }
      history.push_back(token);
    }
    const int64_t room = limits_.max_positions - static_cast<int64_t>(history.size());
    if (room < (turn.max_new_tokens > 0 ? 1 : 0)) return false;
    result.finish_reason = io::FinishReason::length;
    for (int64_t i = 0; i < std::min<int64_t>(turn.max_new_tokens, room); ++i) {
      const int32_t token = next_token(history, turn.random_key);
      result.tokens.push_back(token);
      result.token_logprobs.push_back(log_prob(history, token));
      append_tops(result.token_logprobs.back(), token, limits_.logprobs, limits_.vocab,
                  result.top_tokens, result.top_logprobs);
      history.push_back(token);
      const auto before = answer_before_stop(turn.stop, result.tokens);
      if (before && token != stop_token) {
        result.finish_reason = io::FinishReason::stop;
        result.text_bytes = *before;
        break;
      }
      if (std::count(limits_.stop_token_ids.begin(), limits_.stop_token_ids.end(), token) == 0)
        continue;
      result.finish_reason = io::FinishReason::stop;
      break;
    }
    rows_[turn.row] = std::move(finished);
    return true;
  }

  /// Bytes of the tokens' text before the stop string that ends first in it, if any.
  static std::optional<int64_t> answer_before_stop(const std::vector<std::string>& stop,
                                                   const std::vector<int32_t>& tokens) {
    if (stop.empty()) return {};
    std::string text;
    for (const int32_t token : tokens)
      if (token >= 5) text += fake_detokenizer()->piece(token).bytes;
    for (size_t end = 1; end <= text.size(); ++end)
      for (size_t begin = 0; begin < end; ++begin)
        if (std::count(stop.begin(), stop.end(), text.substr(begin, end - begin)) > 0)
          return static_cast<int64_t>(begin);
    return {};
  }

  std::string too_long(size_t tokens) const {
    return fmt::format(
        "{} tokens with what came before, the model's length is {}: shorten the prompt, or set "
        "model.rope_scaling; then --retry-failed",
        tokens, limits_.max_positions);
  }

 private:
  const SchedulerLimits& limits_;
  std::map<int64_t, Finished>& rows_;
};

}  // namespace

std::map<int64_t, Finished> expected(const SchedulerLimits& limits,
                                     const std::vector<Request>& requests) {
  std::map<int64_t, Finished> rows;
  const Expectation expectation(limits, rows);
  for (const Request& request : requests) {
    const bool fork = request.followup == io::Followup::fork;
    // A turn that cannot run fails what sees it from the start, whatever happens before it.
    const auto bad = std::find_if(request.turns.begin(), request.turns.end(),
                                  [](const Turn& turn) { return !turn.refused.empty(); });
    const auto first_bad = static_cast<size_t>(bad - request.turns.begin());
    std::string broken;
    std::vector<int32_t> chain;
    for (size_t i = 0; i < request.turns.size(); ++i) {
      const Turn& turn = request.turns[i];
      std::vector<int32_t> branch = i == 0 ? std::vector<int32_t>{} : request.turns.front().tokens;
      std::vector<int32_t>& history = fork ? branch : chain;
      std::string why = turn.refused;
      if (why.empty() && i > first_bad && (!fork || first_bad == 0))
        why = "an earlier turn of this request failed: " + bad->refused;
      if (why.empty() && !broken.empty()) why = broken;
      if (why.empty() && !expectation.answer(turn, history))
        why = expectation.too_long(history.size());
      if (why.empty()) continue;
      expectation.fail(turn, why);
      if (broken.empty() && (!fork || i == 0))
        broken = "an earlier turn of this request failed: " + why;
    }
  }
  return rows;
}

std::vector<Request> resumed(std::vector<Request> requests, const Served& served) {
  for (Request& request : requests)
    for (Turn& turn : request.turns) {
      if (const auto row = served.rows.find(turn.row); row != served.rows.end()) {
        turn.recorded = true;
        turn.finished = row->second.state == io::TurnState::done;
        turn.refused = row->second.result.error;
        turn.answer = row->second.result;
      }
      for (const Finished& partial : served.partial)
        if (partial.row == turn.row) turn.answer = partial.result;
    }
  return requests;
}

void expect_same(const std::map<int64_t, Finished>& rows,
                 const std::map<int64_t, Finished>& wanted) {
  ASSERT_EQ(rows.size(), wanted.size());
  for (const auto& [row, want] : wanted) {
    SCOPED_TRACE(fmt::format("row {}", row));
    ASSERT_TRUE(rows.contains(row));
    const Finished& found = rows.at(row);
    EXPECT_EQ(found.state, want.state) << found.result.error;
    EXPECT_EQ(found.result.finish_reason, want.result.finish_reason);
    EXPECT_EQ(found.result.error, want.result.error);
    EXPECT_EQ(found.result.prompt_tokens, want.result.prompt_tokens);
    EXPECT_EQ(found.result.cached_tokens, want.result.cached_tokens);
    EXPECT_EQ(found.result.tokens, want.result.tokens);
    EXPECT_EQ(found.result.text_bytes, want.result.text_bytes);
    EXPECT_TRUE(same_floats(found.result.token_logprobs, want.result.token_logprobs));
    EXPECT_EQ(found.result.top_tokens, want.result.top_tokens);
    EXPECT_TRUE(same_floats(found.result.top_logprobs, want.result.top_logprobs));
    EXPECT_TRUE(same_floats(found.result.prompt_logprobs, want.result.prompt_logprobs))
        << testing::PrintToString(found.result.prompt_logprobs) << " instead of "
        << testing::PrintToString(want.result.prompt_logprobs);
    EXPECT_EQ(found.result.prompt_top_tokens, want.result.prompt_top_tokens);
    EXPECT_TRUE(same_floats(found.result.prompt_top_logprobs, want.result.prompt_top_logprobs));
  }
}

}  // namespace pecia::test
