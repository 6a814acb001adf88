#include "lib/runtime/scheduler.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/parallel/ring.hpp"

namespace pecia::runtime {
namespace {

constexpr float no_prediction = std::numeric_limits<float>::quiet_NaN();

/// Entries of one token's row of top log-probabilities.
int64_t top_width(int wanted, int64_t vocab) { return wanted < 0 ? vocab : wanted; }

template <typename T>
void copy_row(const std::vector<T>& from, int64_t row, int64_t width, std::vector<T>& to,
              int64_t to_row) {
  if (from.empty()) return;
  std::copy_n(from.begin() + row * width, width, to.begin() + to_row * width);
}

template <typename T>
void append_row(const std::vector<T>& from, int64_t row, int64_t width, std::vector<T>& to) {
  if (!from.empty()) to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
}

}  // namespace

/// A request under way. The first turn of a fork is its stem, computed once; each turn that generates
/// is a branch, a sequence of its own whose first tokens are the stem's.
struct Scheduler::Family {
  Request request;
  double ready = 0;            ///< when its next turn could have begun
  int64_t stem = -1;           ///< sequence of a fork's first turn
  int64_t live_branches = 0;
  size_t next_branch = 0;      ///< turn of the next branch to start
  int64_t credit = 0;          ///< slots for one branch at a time, so that a stem never waits for ever
  bool credit_held = false;

  bool is_fork() const { return request.followup == io::Followup::fork; }
  /// Turns that still need a branch, from next_branch on.
  void skip_settled() {
    while (next_branch < request.turns.size() && settled(request.turns[next_branch])) ++next_branch;
  }
  static bool settled(const Turn& turn) { return turn.finished || !turn.refused.empty(); }
  bool keeps_tokens() const {
    return std::any_of(request.turns.begin(), request.turns.end(), [](const Turn& turn) {
      return turn.params.repetition_penalty != 1.0f || turn.params.presence_penalty != 0.0f ||
             turn.params.frequency_penalty != 0.0f;
    });
  }
  bool branches_left() const { return next_branch < request.turns.size(); }
};

/// A sequence that takes part in passes.
struct Scheduler::Running {
  std::shared_ptr<Family> family;
  int64_t sequence = 0;
  size_t turn = 0;
  bool is_stem = false;
  bool uses_credit = false;
  bool begun = false;             ///< the turn's first pass is planned
  std::vector<int32_t> unfed;     ///< known tokens not cached yet, from position map.length on
  std::vector<int32_t> feed;      ///< those of them that the turn's prefill computes
  int64_t fed = 0;                ///< of `feed`
  int64_t prompt_begin = 0;       ///< position of the turn's first own token
  int64_t answer_begin = 0;
  int64_t max_new_tokens = 0;
  int64_t deal_limit = 0;         ///< of generated tokens, on any one rank
  std::vector<int64_t> dealt;     ///< by rank
  bool samples = false;           ///< the end of the feed is followed by a sampled token
  double started = 0, first_token = 0;
  io::TurnResult result;

  Turn& current() { return family->request.turns[turn]; }
  bool feeding() const { return fed < static_cast<int64_t>(feed.size()); }
};

Scheduler::Scheduler(SchedulerLimits limits) : limits_(std::move(limits)), map_(limits_.ring_size) {
  PECIA_CHECK(limits_.max_sequences >= 1 && limits_.max_batch_tokens >= 1, "{} sequences, {} tokens",
              limits_.max_sequences, limits_.max_batch_tokens);
}

Scheduler::~Scheduler() = default;

/// Slots on each rank for tokens that are prefilled in chunks of max_batch_tokens.
int64_t Scheduler::feed_slots(int64_t tokens) const {
  const int64_t chunk = limits_.max_batch_tokens;
  return tokens / chunk * parallel::max_owned_tokens(chunk, limits_.ring_size) +
         parallel::max_owned_tokens(tokens % chunk, limits_.ring_size);
}

/// Slots on each rank for what is still to be generated; dealt round-robin.
int64_t Scheduler::answer_slots(const Turn& turn) const {
  const int64_t tokens = std::max<int64_t>(
      0, turn.max_new_tokens - static_cast<int64_t>(turn.answer.tokens.size()));
  return (tokens + limits_.ring_size - 1) / limits_.ring_size;
}

int64_t Scheduler::chain_slots(const Request& request) const {
  int64_t slots = 0, unfed = 0;
  for (const Turn& turn : request.turns) {
    if (!turn.refused.empty()) break;
    unfed += static_cast<int64_t>(turn.tokens.size() + turn.answer.tokens.size());
    if (turn.finished) continue;
    slots += feed_slots(unfed) + answer_slots(turn);
    unfed = 1;  // the last token of an answer is cached with the turn after it
  }
  return slots;
}

int64_t Scheduler::stem_slots(const Request& request) const {
  return feed_slots(static_cast<int64_t>(request.turns.front().tokens.size()));
}

int64_t Scheduler::branch_slots(const Request& request, size_t turn) const {
  const Turn& branch = request.turns[turn];
  const auto answered = static_cast<int64_t>(branch.answer.tokens.size());
  // The first turn's own answer: its first token comes from the stem, if not from an earlier run.
  const int64_t feed = turn == 0 ? std::max<int64_t>(1, answered)
                                 : static_cast<int64_t>(branch.tokens.size()) + answered;
  return feed_slots(feed) + answer_slots(branch);
}

int64_t Scheduler::tokens_needed(const Request& request) const {
  if (request.followup == io::Followup::chain) return chain_slots(request);
  int64_t most = 0;
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (!Family::settled(request.turns[turn])) most = std::max(most, branch_slots(request, turn));
  return stem_slots(request) + most;
}

int64_t Scheduler::free_slots() const {
  return limits_.kv_tokens - map_.total_reserved() - credits_;
}

void Scheduler::refuse(Turn& turn, const std::string& why) {
  if (turn.finished) return;
  turn.refused = why;
  if (std::exchange(turn.recorded, true)) return;
  Finished failed{turn.row, io::TurnState::failed, {}};
  failed.result.finish_reason = io::FinishReason::failed;
  failed.result.error = why;
  failed.result.prompt_tokens = static_cast<int32_t>(turn.tokens.size());
  finished_.push_back(std::move(failed));
}

void Scheduler::add(Request request, double now) {
  PECIA_CHECK(!request.turns.empty(), "a request without turns");
  auto family = std::make_shared<Family>();
  const bool fork = request.followup == io::Followup::fork;
  std::string broken;  // why the turns that depend on this one cannot run
  for (size_t i = 0; i < request.turns.size(); ++i) {
    Turn& turn = request.turns[i];
    if (!broken.empty())
      refuse(turn, broken);
    else if (!turn.refused.empty()) {
      refuse(turn, std::string(turn.refused));
      if (!fork || i == 0) broken = "an earlier turn of this request failed: " + turn.refused;
    }
  }
  const int64_t needed = tokens_needed(request);
  if (needed > limits_.kv_tokens)
    for (Turn& turn : request.turns)
      if (!Family::settled(turn))
        refuse(turn, fmt::format("needs {} KV slots on each rank, there are {}: raise kv.memory, use more "
                                 "ranks (cp) or a narrower kv.dtype",
                                 needed, limits_.kv_tokens));
  if (std::all_of(request.turns.begin(), request.turns.end(), Family::settled)) return;
  if (limits_.prompt_logprobs != 0)
    for (Turn& turn : request.turns) {
      const size_t width = top_width(limits_.prompt_logprobs, limits_.vocab);
      turn.answer.prompt_logprobs.assign(turn.tokens.size(), no_prediction);
      turn.answer.prompt_top_logprobs.assign(turn.tokens.size() * width, no_prediction);
      if (limits_.prompt_logprobs > 0)
        turn.answer.prompt_top_tokens.assign(turn.tokens.size() * width, -1);
    }
  family->request = std::move(request);
  family->ready = now;
  waiting_.push_back(std::move(family));
}

std::optional<Plan> Scheduler::next(double now) {
  Plan plan;
  plan.number = next_plan_++;
  admit(plan, now);
  for (auto running = running_.begin(); running != running_.end();) {
    const auto current = running++;
    if (!current->begun) start_turn(plan, *current, now);
    if (!current->begun) end(current);
  }
  // A sequence that could not begin its turn was never known to anyone else.
  std::erase_if(plan.added, [&](const NewSequence& added) {
    return std::erase(removed_, added.sequence) > 0;
  });
  plan.removed = std::exchange(removed_, {});
  feed(plan, now);
  if (plan.items.empty()) decode(plan);
  if (plan.items.empty()) {
    removed_ = std::move(plan.removed);
    // A refused turn may have made room for others.
    return waiting_.empty() && forks_.empty() && running_.empty() ? std::nullopt : next(now);
  }
  return plan;
}

void Scheduler::admit(Plan& plan, double now) {
  const auto room = [&] { return static_cast<int64_t>(running_.size()) < limits_.max_sequences; };
  for (auto fork = forks_.begin(); fork != forks_.end();) {
    while (room() && (*fork)->branches_left() && admit_branch(plan, **fork)) {
      running_.back().family = *fork;
      (*fork)->skip_settled();
    }
    fork = (*fork)->branches_left() ? std::next(fork) : forks_.erase(fork);
  }
  while (room() && !waiting_.empty() && admit_request(plan)) {
    running_.back().started = now;
    waiting_.pop_front();
  }
}

bool Scheduler::admit_request(Plan& plan) {
  Family& family = *waiting_.front();
  const int64_t needed = tokens_needed(family.request);
  if (needed > free_slots()) return false;
  Running running;
  running.family = waiting_.front();
  running.sequence = next_sequence_++;
  int64_t reserved = needed;
  if (family.is_fork()) {
    reserved = stem_slots(family.request);
    family.stem = running.sequence;
    family.credit = needed - reserved;
    family.credit_held = true;
    credits_ += family.credit;
    running.is_stem = true;
  }
  map_.add(running.sequence, reserved);
  plan.added.push_back(
      {running.sequence, NewSequence::no_parent, reserved, family.keeps_tokens()});
  running_.push_back(std::move(running));
  return true;
}

/// Starts the family's next branch, on its credit or on free memory.
bool Scheduler::admit_branch(Plan& plan, Family& family) {
  const int64_t needed = branch_slots(family.request, family.next_branch);
  Running running;
  if (family.credit_held) {
    family.credit_held = false;
    credits_ -= family.credit;
    running.uses_credit = true;
  } else if (needed > free_slots()) {
    return false;
  }
  running.turn = family.next_branch++;
  running.sequence = next_sequence_++;
  ++family.live_branches;
  map_.add(running.sequence, needed, family.stem);
  plan.added.push_back({running.sequence, family.stem, needed, family.keeps_tokens()});
  running_.push_back(std::move(running));
  return true;
}

/// Sets up the sequence's turn: what to feed, where the answer begins, how long it may be. A turn that
/// cannot run is refused with all that depend on it, and the sequence is left with `begun` false.
void Scheduler::start_turn(Plan& plan, Running& running, double now) {
  Family& family = *running.family;
  const bool branch = family.is_fork() && !running.is_stem;
  auto& turns = family.request.turns;
  while (!branch && !running.is_stem && running.turn < turns.size() && turns[running.turn].finished) {
    const Turn& done = turns[running.turn++];
    running.unfed.insert(running.unfed.end(), done.tokens.begin(), done.tokens.end());
    running.unfed.insert(running.unfed.end(), done.answer.tokens.begin(), done.answer.tokens.end());
  }
  if (running.turn == turns.size() || (!running.is_stem && !turns[running.turn].refused.empty())) return;

  Turn& turn = turns[running.turn];
  const int64_t cached = map_.length(running.sequence);
  if (branch && running.turn == 0) {
    running.prompt_begin = 0;
    running.answer_begin = cached;
  } else {
    running.prompt_begin = cached + static_cast<int64_t>(running.unfed.size());
    running.answer_begin = running.prompt_begin + static_cast<int64_t>(turn.tokens.size());
    running.unfed.insert(running.unfed.end(), turn.tokens.begin(), turn.tokens.end());
  }
  const int64_t room = limits_.max_positions - running.answer_begin;
  if (room < (turn.max_new_tokens > 0 && !running.is_stem ? 1 : 0)) {
    const std::string why =
        fmt::format("{} tokens with what came before, the model's length is {}: shorten the prompt, or set "
                    "model.rope_scaling",
                    running.answer_begin, limits_.max_positions);
    const std::string after = "an earlier turn of this request failed: " + why;
    refuse(turn, why);
    if (!branch)
      for (size_t later = running.turn + 1; later < turns.size(); ++later) refuse(turns[later], after);
    return;
  }
  running.result = turn.answer;
  running.result.prompt_tokens = static_cast<int32_t>(turn.tokens.size());
  running.result.cached_tokens = static_cast<int32_t>(running.prompt_begin);
  running.max_new_tokens = std::min<int64_t>(turn.max_new_tokens, room);
  running.deal_limit = answer_slots(turn);
  running.dealt.assign(limits_.ring_size, 0);
  if (!running.is_stem || running.result.tokens.empty()) {
    running.unfed.insert(running.unfed.end(), running.result.tokens.begin(), running.result.tokens.end());
  }
  const auto given = static_cast<int64_t>(running.result.tokens.size());
  running.samples = running.max_new_tokens > given && !(running.is_stem && (given > 0 || turn.finished));
  running.feed = std::exchange(running.unfed, {});
  running.fed = 0;
  running.begun = true;
  running.started = now;
  if (given == 0) running.result.queue_s = static_cast<float>(now - family.ready);
  if (running.samples)
    plan.turns.push_back({running.sequence, turn.params, turn.random_key, running.answer_begin});
}

/// Prefill: the next chunk of every sequence that has one, as long as they fit the batch.
void Scheduler::feed(Plan& plan, double now) {
  plan.ring = parallel::Ring::pass_kv;
  int64_t total = 0;
  for (Running& running : running_) {
    if (!running.feeding()) continue;
    const int64_t left = static_cast<int64_t>(running.feed.size()) - running.fed;
    const int64_t count = std::min(left, limits_.max_batch_tokens);
    if (total > 0 && total + count > limits_.max_batch_tokens) continue;
    total += count;
    PlanItem item;
    item.rows = {running.sequence, map_.length(running.sequence), count};
    item.tokens.assign(running.feed.begin() + running.fed, running.feed.begin() + running.fed + count);
    item.prompt_end = running.answer_begin;
    if (count == left && running.samples)
      item.sampled_index = static_cast<int64_t>(running.result.tokens.size());
    if (running.fed == 0) running.started = now;
    add_targets(plan, running, static_cast<int32_t>(plan.items.size()), item.rows.first,
                item.rows.first + count);
    map_.append(item.rows);
    plan.items.push_back(std::move(item));
  }
}

/// One token of every sequence that has been prefilled, dealt round-robin; the deal moves on by one rank
/// with every step (Context Parallelism …, §3.6), so that no rank's memory fills up first.
void Scheduler::decode(Plan& plan) {
  plan.ring = limits_.ring_size > 1 ? parallel::Ring::pass_q : parallel::Ring::pass_kv;
  int64_t index = 0;
  for (Running& running : running_) {
    PECIA_CHECK(running.unfed.size() == 1, "sequence {} has {} tokens to decode", running.sequence,
                running.unfed.size());
    PlanItem item;
    // A sequence's share of a rank's memory is fixed when it is admitted: a full rank is passed over.
    auto owner = static_cast<int32_t>((index++ + plan.number) % limits_.ring_size);
    while (running.dealt[owner] == running.deal_limit) owner = (owner + 1) % limits_.ring_size;
    ++running.dealt[owner];
    item.rows = {running.sequence, map_.length(running.sequence), 1, owner};
    item.tokens = running.unfed;
    item.prompt_end = running.answer_begin;
    item.sampled_index = static_cast<int64_t>(running.result.tokens.size());
    map_.append(item.rows);
    plan.items.push_back(std::move(item));
  }
}

/// Log-probabilities of prompt tokens whose predecessor is among positions [begin, end).
void Scheduler::add_targets(Plan& plan, const Running& running, int32_t item, int64_t begin,
                            int64_t end) {
  if (limits_.prompt_logprobs == 0) return;
  const auto& turns = running.family->request.turns;
  const auto& own = turns[running.turn].tokens;
  if (!(running.family->is_fork() && !running.is_stem && running.turn == 0))
    for (int64_t position = std::max(begin, running.prompt_begin - 1);
         position < std::min(end, running.answer_begin - 1); ++position)
      plan.targets.push_back({item, own[position + 1 - running.prompt_begin], position});
  if (running.is_stem && end == running.answer_begin)
    for (size_t branch = 1; branch < turns.size(); ++branch)
      if (!Family::settled(turns[branch]))
        plan.targets.push_back({item, turns[branch].tokens.front(), end - 1});
}

void Scheduler::commit(const Plan& plan, const std::vector<Outcome>& outcomes, double now) {
  std::vector<std::list<Running>::iterator> of_item;
  for (const PlanItem& item : plan.items) {
    const auto found = std::find_if(running_.begin(), running_.end(), [&](const Running& running) {
      return running.sequence == item.rows.sequence;
    });
    PECIA_CHECK(found != running_.end(), "sequence {} is not running", item.rows.sequence);
    of_item.push_back(found);
  }

  // Where the plan's targets go: each item's own prompt, in order; after a stem's last row, its branches'
  // first tokens.
  std::vector<std::pair<io::TurnResult*, int64_t>> destinations;
  std::map<int32_t, size_t> branches_seen;
  for (const Target& target : plan.targets) {
    Running& running = *of_item[target.item];
    if (running.is_stem && target.position == running.answer_begin - 1) {
      auto& turns = running.family->request.turns;
      size_t& branch = branches_seen.try_emplace(target.item, 0).first->second;
      do ++branch;
      while (Family::settled(turns[branch]));
      destinations.emplace_back(&turns[branch].answer, 0);
    } else {
      destinations.emplace_back(&running.result, target.position + 1 - running.prompt_begin);
    }
  }

  double compute_s = 0, comm_s = 0;
  for (const Outcome& outcome : outcomes) {
    compute_s += outcome.compute_s / static_cast<double>(outcomes.size());
    comm_s += outcome.comm_s / static_cast<double>(outcomes.size());
    const int64_t prompt_width = top_width(limits_.prompt_logprobs, limits_.vocab);
    for (size_t i = 0; i < outcome.targets.which.size(); ++i) {
      const auto& [result, index] = destinations[outcome.targets.which[i]];
      const auto row = static_cast<int64_t>(i);
      result->prompt_logprobs[index] = outcome.targets.logprobs[i];
      copy_row(outcome.targets.top_tokens, row, prompt_width, result->prompt_top_tokens, index);
      copy_row(outcome.targets.top_logprobs, row, prompt_width, result->prompt_top_logprobs, index);
    }
  }

  std::vector<std::optional<int32_t>> sampled(plan.items.size());
  const int64_t width = top_width(limits_.logprobs, limits_.vocab);
  for (const Outcome& outcome : outcomes)
    for (size_t i = 0; i < outcome.sampled.which.size(); ++i) {
      const int32_t item = outcome.sampled.which[i];
      const auto row = static_cast<int64_t>(i);
      io::TurnResult& result = of_item[item]->result;
      sampled[item] = outcome.sampled.tokens[i];
      result.token_logprobs.push_back(outcome.sampled.logprobs[i]);
      append_row(outcome.sampled.top_tokens, row, width, result.top_tokens);
      append_row(outcome.sampled.top_logprobs, row, width, result.top_logprobs);
    }

  for (size_t i = 0; i < plan.items.size(); ++i) {
    Running& running = *of_item[i];
    const PlanItem& item = plan.items[i];
    const bool fed = running.feeding();
    (fed ? running.result.prefill_compute_s : running.result.decode_compute_s) +=
        static_cast<float>(compute_s);
    (fed ? running.result.prefill_comm_s : running.result.decode_comm_s) += static_cast<float>(comm_s);
    if (fed) running.fed += item.rows.count;
    if (running.feeding()) continue;
    PECIA_CHECK(sampled[i].has_value() == (item.sampled_index >= 0),
                "sequence {} was {}sampled", running.sequence, sampled[i] ? "" : "not ");
    if (sampled[i])
      answered(running, *sampled[i], now);
    else
      finish_turn(running, io::FinishReason::length, now);
    if (!running.begun && (running.family->is_fork() ||
                           running.turn == running.family->request.turns.size()))
      end(of_item[i]);
  }
}

bool Scheduler::stops(int32_t token) const {
  return std::find(limits_.stop_token_ids.begin(), limits_.stop_token_ids.end(), token) !=
         limits_.stop_token_ids.end();
}

void Scheduler::answered(Running& running, int32_t token, double now) {
  io::TurnResult& result = running.result;
  result.tokens.push_back(token);
  if (running.first_token == 0) running.first_token = now;
  if (result.ttft_s == 0) result.ttft_s = static_cast<float>(now - running.started);
  running.unfed = {token};
  if (stops(token))
    finish_turn(running, io::FinishReason::stop, now);
  else if (static_cast<int64_t>(result.tokens.size()) >= running.max_new_tokens)
    finish_turn(running, io::FinishReason::length, now);
  else if (running.is_stem) {  // the answer goes on in a branch
    running.current().answer = std::move(result);
    running.begun = false;
  }
}

void Scheduler::finish_turn(Running& running, io::FinishReason reason, double now) {
  Turn& turn = running.current();
  running.begun = false;
  // A stem without an answer of its own is a turn that generates nothing.
  const bool unanswered = running.is_stem && !running.samples && turn.max_new_tokens > 0;
  if (!turn.finished && !unanswered) {
    running.result.finish_reason = reason;
    if (running.first_token > 0)
      running.result.decode_s = static_cast<float>(now - running.first_token);
    finished_.push_back({turn.row, io::TurnState::done, std::move(running.result)});
    turn.finished = true;
  }
  running.result = {};
  running.first_token = 0;
  running.family->ready = now;
  if (!running.family->is_fork()) ++running.turn;
}

/// The sequence takes part in no more passes: frees what is its own and, with a fork's last branch, the
/// stem; lets a stem's branches begin.
void Scheduler::end(std::list<Running>::iterator running) {
  const std::shared_ptr<Family> family = running->family;
  const auto free = [&](int64_t sequence) {
    map_.remove(sequence);
    removed_.push_back(sequence);
  };
  if (!family->is_fork()) {
    free(running->sequence);
  } else {
    if (running->is_stem) {
      family->skip_settled();
      if (family->branches_left()) forks_.push_back(family);
    } else {
      free(running->sequence);
      --family->live_branches;
      if (running->uses_credit && family->branches_left()) {
        family->credit_held = true;
        credits_ += family->credit;
      }
    }
    if (!family->branches_left() && family->live_branches == 0) {
      if (family->credit_held) credits_ -= family->credit;
      family->credit_held = false;
      free(family->stem);
    }
  }
  running_.erase(running);
}

std::vector<Finished> Scheduler::take_finished() { return std::exchange(finished_, {}); }

std::vector<Finished> Scheduler::partial() const {
  std::vector<Finished> partial;
  for (const Running& running : running_)
    if (running.begun && !running.result.tokens.empty())
      partial.push_back({running.family->request.turns[running.turn].row, io::TurnState::partial,
                         running.result});
  return partial;
}

}  // namespace pecia::runtime
