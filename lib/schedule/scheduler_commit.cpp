// SPDX-License-Identifier: Apache-2.0
/// Takes in the outcomes of a finished pass.

#include <algorithm>
#include <map>
#include <utility>

#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {
namespace {

template <typename T>
void copy_row(const std::vector<T>& from, int64_t row, int64_t width, std::vector<T>& to,
              int64_t to_row) {
  if (from.empty()) return;
  std::copy_n(from.begin() + row * width, width, to.begin() + to_row * width);
}

template <typename T>
void append_row(const std::vector<T>& from, int64_t row, int64_t width, std::vector<T>& to) {
  if (!from.empty())
    to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
}

}  // namespace

void Scheduler::commit(const Plan& plan, const std::vector<Outcome>& outcomes, double now) {
  std::vector<std::list<Running>::iterator> of_item;
  // Most items come in the order of running_, so each is looked for after the one before it.
  auto at = running_.begin();
  for (const PlanItem& item : plan.items) {
    const auto is_of_item = [&](const Running& running) {
      return running.sequence == item.rows.sequence;
    };
    auto found = std::find_if(at, running_.end(), is_of_item);
    if (found == running_.end()) found = std::find_if(running_.begin(), at, is_of_item);
    PECIA_CHECK(found != running_.end() && is_of_item(*found), "sequence {} is not running",
                item.rows.sequence);
    found->in_pass = 0;
    of_item.push_back(found);
    at = std::next(found);
  }
  const bool read = !plan.restore.empty() && outcomes.front().kv.done != 0;
  if (limits_.time && !read) {
    const auto [prompts, answers] = work_of(plan);
    const double workers = limits_.elastic ? plan.teams.front().workers() : 1;
    limits_.time->times.add(prompts.shared(workers), answers.shared(workers),
                            now - under_way_.at(plan.number));
  }
  if (limits_.elastic) note_time(plan, now - under_way_.at(plan.number));
  end_pass(plan);
  take_targets(plan, outcomes, of_item);

  double compute_s = 0, comm_s = 0;
  std::map<int32_t, std::string> broken;  // by item
  std::vector<std::optional<int32_t>> sampled(plan.items.size());
  const int64_t width = top_width(limits_.logprobs, limits_.vocab);
  for (const Outcome& outcome : outcomes) {
    compute_s += outcome.compute_s / static_cast<double>(outcomes.size());
    comm_s += outcome.comm_s / static_cast<double>(outcomes.size());
    for (const Broken& of : outcome.broken) broken[of.item] = of.where;
    for (size_t i = 0; i < outcome.sampled.which.size(); ++i) {
      const int32_t item = outcome.sampled.which[i];
      const auto row = static_cast<int64_t>(i);
      io::TurnResult& result = of_item[item]->result;
      sampled[item] = outcome.sampled.tokens[i];
      result.token_logprobs.push_back(outcome.sampled.logprobs[i]);
      append_row(outcome.sampled.top_tokens, row, width, result.top_tokens);
      append_row(outcome.sampled.top_logprobs, row, width, result.top_logprobs);
    }
  }
  int64_t rows = 0;
  for (const PlanItem& item : plan.items) rows += item.rows.count;
  const double row_s = (compute_s + comm_s) / static_cast<double>(rows);

  for (size_t i = 0; i < plan.items.size(); ++i) {
    Running& running = *of_item[i];
    io::TurnResult& result = running.result;
    const bool fed = running.feeding();
    (fed ? result.prefill_compute_s : result.decode_compute_s) += static_cast<float>(compute_s);
    (fed ? result.prefill_comm_s : result.decode_comm_s) += static_cast<float>(comm_s);
    if (!plan.restore.empty()) note_restored(plan, outcomes, running);
    if (!running.is_branch())
      running.family->computed_s += row_s * static_cast<double>(plan.items[i].rows.count);
    if (fed) running.fed += plan.items[i].rows.count;
    if (running.feeding()) continue;
    PECIA_CHECK(sampled[i].has_value() == (plan.items[i].sampled_index >= 0),
                "sequence {} was {}sampled", running.sequence, sampled[i] ? "" : "not ");
    if (sampled[i] == kernels::no_token) {
      const auto where = broken.find(static_cast<int32_t>(i));
      fail_turn(running,
                fmt::format("the logits after {} tokens of the answer hold NaN or infinity, which "
                            "came from {}: try kv.dtype fp32 or model.dtype fp32 in another output "
                            "folder",
                            running.result.tokens.size(),
                            where == broken.end() ? "the last FFN or the head" : where->second),
                now);
    } else if (sampled[i]) {
      answered(running, *sampled[i], now);
    } else {
      finish_turn(running, io::FinishReason::length, now);
    }
    const bool last = running.is_stem || running.turn == running.end;
    if (!running.begun && last) end(of_item[i]);
  }
}

/// Stores the prompts' log-probabilities: in each item's own prompt, and for its last row in the
/// turns that follow.
void Scheduler::take_targets(const Plan& plan, const std::vector<Outcome>& outcomes,
                             const std::vector<std::list<Running>::iterator>& of_item) {
  std::vector<std::pair<io::TurnResult*, int64_t>> destinations;
  std::map<int32_t, size_t> followers_seen;  // by item
  for (const Target& target : plan.targets) {
    Running& running = *of_item[target.item];
    if (target.position + 1 < running.answer_begin) {
      destinations.emplace_back(&running.result, target.position + 1 - running.prompt_begin);
      continue;
    }
    const size_t turn = followers(running).at(followers_seen[target.item]++);
    destinations.emplace_back(&running.family->request.turns[turn].answer, 0);
  }
  const int64_t width = top_width(limits_.prompt_logprobs, limits_.vocab);
  for (const Outcome& outcome : outcomes)
    for (size_t i = 0; i < outcome.targets.which.size(); ++i) {
      const auto& [result, index] = destinations[outcome.targets.which[i]];
      const auto row = static_cast<int64_t>(i);
      result->prompt_logprobs[index] = outcome.targets.logprobs[i];
      copy_row(outcome.targets.top_tokens, row, width, result->prompt_top_tokens, index);
      copy_row(outcome.targets.top_logprobs, row, width, result->prompt_top_logprobs, index);
    }
}

bool Scheduler::stops(const Turn& turn, int32_t token) const {
  const auto is_among = [&](const std::vector<int32_t>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  return is_among(limits_.stop_token_ids) && !(turn.ignore_eos && is_among(limits_.eos_token_ids));
}

void Scheduler::answered(Running& running, int32_t token, double now) {
  io::TurnResult& result = running.result;
  if (result.tokens.empty()) result.ttft_s = static_cast<float>(now - running.ttft_begin);
  if (!running.first_token) running.first_token = now;
  result.decode_s = static_cast<float>(running.earlier_decode_s + now - *running.first_token);
  result.tokens.push_back(token);
  running.unfed = {token};
  // The text of a stop token is not part of the answer.
  const bool stopped = stops(running.current(), token);
  if (!stopped && running.stop_strings)
    result.text_bytes = running.stop_strings->read(token).value_or(-1);
  if (running.shape) {
    const bool fits = running.shape->accept(token);
    const bool ends = stopped || result.text_bytes >= 0 ||
                      static_cast<int64_t>(result.tokens.size()) >= running.max_new_tokens;
    if (!fits || (ends && !running.shape->is_complete()))
      return fail_turn(
          running,
          fmt::format("after {} tokens the answer {}", result.tokens.size(),
                      !fits ? "cannot go on in its shape with this model's tokens"
                      : result.text_bytes >= 0
                          ? "ended at a stop text, before its shape was complete"
                          : "was as long as it may be, and its shape was not complete; raise "
                            "max_new_tokens, then --retry-failed"),
          now);
  }
  if (stopped || result.text_bytes >= 0) {
    finish_turn(running, io::FinishReason::stop, now);
  } else if (static_cast<int64_t>(result.tokens.size()) >= running.max_new_tokens) {
    finish_turn(running, io::FinishReason::length, now);
  } else if (running.is_stem) {  // the answer goes on in a branch
    running.current().answer = std::move(result);
    running.begun = false;
    running.family->stem_answered = running.family->ready = now;
  }
}

/// There is no next token, or the answer has not its shape. This ends a chain or a branch; the
/// branches of a stem go on.
void Scheduler::fail_turn(Running& running, const std::string& why, double now) {
  auto& turns = running.family->request.turns;
  refuse(turns[running.turn], why);
  if (!running.is_stem) {
    for (size_t later = running.turn + 1; later < running.end; ++later)
      refuse(turns[later], "an earlier turn of this request failed: " + why);
    running.turn = running.end;
  }
  running.begun = false;
  running.result = {};
  if (!running.is_branch()) running.family->ready = now;
}

void Scheduler::finish_turn(Running& running, io::FinishReason reason, double now) {
  Turn& turn = running.current();
  running.begun = false;
  if (turn.row ==
      Turn::no_row) {  // the common beginning of joined requests, which wait since before
    ++sharing_.prefixes;
    sharing_.prefix_tokens += std::ssize(turn.tokens);
    turn.finished = true;
    running.result = {};
    return;
  }
  running.ready = now;
  if (!running.is_branch()) running.family->ready = now;
  if (running.max_new_tokens > 0 && running.samples) {
    ++answered_turns_;
    answered_tokens_ += static_cast<int64_t>(running.result.tokens.size());
    allowed_tokens_ += running.max_new_tokens;
  }
  const bool unanswered = running.is_stem && !running.samples && turn.max_new_tokens > 0;
  if (!turn.finished && unanswered) {  // an earlier run began the answer; a branch goes on with it
    turn.answer = std::move(running.result);
  } else if (!turn.finished) {
    running.result.finish_reason = reason;
    turn.finished = true;
    any_done_ = running.family->progressed = true;
    finished_.push_back({turn.row, io::TurnState::done, std::move(running.result)});
  }
  running.result = {};
  running.first_token.reset();
  if (!running.is_stem) ++running.turn;
}

/// The sequence takes part in no more passes. Frees its slots, and the stem's with a fork's last
/// branch; lets a stem's branches begin.
void Scheduler::end(std::list<Running>::iterator running) {
  const std::shared_ptr<Family> family = running->family;
  const auto free = [&](int64_t sequence) {
    map_.remove(sequence);
    forget(sequence);
  };
  if (!running->is_stem) free(running->sequence);
  if (family->is_fork()) {
    if (running->is_stem) {
      family->skip_settled();
      if (family->branches_left()) forks_.push_back(family);
    } else {
      --family->live_branches;
    }
    if (running->uses_credit) {
      family->credit_used = false;
      keep_back(*family, family->credit);
    }
    if (!family->branches_left()) keep_back(*family, Slots(limits_.ring_size));
    if (!family->branches_left() && family->live_branches == 0) free(family->stem);
  }
  running_.erase(running);
}

}  // namespace pecia::schedule
