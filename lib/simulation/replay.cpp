// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/replay.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/report/trace.hpp"
#include "lib/simulation/replay_state.hpp"
#include "lib/work/cluster_files/op_time.hpp"

namespace pecia::simulation {
namespace {

using comm::PhantomMessage;
using comm::PhantomStart;

constexpr int64_t longest_period = 32;  // layers after which a state may come again

class Replay {
 public:
  Replay(const std::vector<Program>& programs, const cluster_files::Cluster& cluster,
         const OnMoment& on_moment)
      : programs_(programs),
        cluster_(cluster),
        on_moment_(on_moment),
        network_(cluster),
        ranks_(programs.size()) {
    for (int rank = 0; rank < size(); ++rank) {
      ranks_[rank].now = ranks_[rank].times.other_s = 1e-6 * cluster.overhead.step_us;
      push_ready(rank);
    }
  }

  ReplayResult run() {
    while (!ready_.empty() || network_.next_change() < Network::never) {
      const double next = ready_.empty() ? Network::never : ready_.front().first;
      const double next_arrival = network_.next_change();
      if (next_arrival <= next) {
        const double now = next_arrival;
        for (const int64_t message : network_.advance(now)) arrived(now, message);
      } else {
        std::ranges::pop_heap(ready_, std::greater<>());
        const int rank = ready_.back().second;
        ready_.pop_back();
        go_on(rank);
      }
      if (lap_done_ > 0 && !skipped_ && !on_moment_)
        skip_what_repeats(std::min(next, next_arrival));
    }
    return result();
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }

  void push_ready(int rank) {
    ready_.emplace_back(ranks_[rank].now, rank);
    std::ranges::push_heap(ready_, std::greater<>());
  }

  /// When the last rank has done a layer that repeats, the state of all ranks and messages is
  /// compared with those after earlier layers. If it is one of them, so is all that follows, until
  /// the first rank comes to the last repetition. This is then not played.
  void skip_what_repeats(double now) {
    const int64_t lap = std::exchange(lap_done_, 0);
    int64_t laps = std::numeric_limits<int64_t>::max();
    for (int index = 0; index < size(); ++index) {
      PlayedRank& rank = ranks_[index];
      if (next_step(index) == nullptr) return;
      laps = std::min(laps, programs_[index][rank.section].times - 1 - rank.time_of_section);
      while (rank.first_open < std::ssize(rank.started) && rank.started[rank.first_open].done())
        ++rank.first_open;
    }
    if (laps < 1) return;
    ReplayState state = state_of(now, lap, ranks_, sends_, receives_, sides_, network_);
    const auto same = std::ranges::find_if(
        earlier_, [&](const ReplayState& earlier) { return alike(earlier, state); });
    if (same == earlier_.end()) {
      earlier_.push_front(std::move(state));
      if (std::ssize(earlier_) > longest_period) earlier_.pop_back();
      return;
    }
    skip(laps / (lap - same->lap), *same, state);
    skipped_ = true;
    earlier_.clear();
  }

  /// Goes on as if what lies between two states had been done some more times.
  void skip(int64_t more, const ReplayState& from, const ReplayState& to) {
    const auto times = static_cast<double>(more);
    const double seconds = times * (to.at - from.at);
    for (int index = 0; index < size(); ++index) {
      PlayedRank& rank = ranks_[index];
      rank.time_of_section += more * (to.lap - from.lap);
      rank.now += seconds;
      rank.waits_since += seconds;
      const RankTimes &before = from.spent[index], &after = to.spent[index];
      rank.times.gemm_s += times * (after.gemm_s - before.gemm_s);
      rank.times.attention_s += times * (after.attention_s - before.attention_s);
      rank.times.other_s += times * (after.other_s - before.other_s);
      rank.times.exposed_comm_s += times * (after.exposed_comm_s - before.exposed_comm_s);
    }
    for (auto& [at, rank] : ready_) at = ranks_[rank].now;
    std::ranges::make_heap(ready_, std::greater<>());
    network_.shift(seconds);
    skipped_messages_ = more * (to.messages - from.messages);
  }

  const Step* next_step(int index) const {
    const PlayedRank& rank = ranks_[index];
    if (rank.section == programs_[index].size()) return nullptr;
    return &programs_[index][rank.section].steps[rank.step];
  }

  void pass_step(int index) {
    PlayedRank& rank = ranks_[index];
    const Section& section = programs_[index][rank.section];
    if (++rank.step < section.steps.size()) return;
    rank.step = 0;
    if (++rank.time_of_section < section.times) {
      if (++laps_[rank.time_of_section] == size()) lap_done_ = rank.time_of_section;
      return;
    }
    rank.time_of_section = 0;
    ++rank.section;
  }

  /// Does the steps of a rank from its time on. A rank runs ahead of the others until it starts
  /// messages, as these must start in the order of time over all ranks: it then comes back.
  void go_on(int index) {
    PlayedRank& rank = ranks_[index];
    const double begin = rank.now;
    while (const Step* step = next_step(index)) {
      if (const auto* op = std::get_if<kernels::OpWork>(&step->what)) {
        const double seconds = op_seconds(*op, cluster_, others_that_work(index));
        double& sum = op->flops == 0                     ? rank.times.other_s
                      : kernels::multiplies_weights(*op) ? rank.times.gemm_s
                                                         : rank.times.attention_s;
        spend(index, *step, seconds, sum, op->bytes_read + op->bytes_written);
      } else if (const auto* copy = std::get_if<Copy>(&step->what)) {
        spend(index, *step,
              cluster_files::copy_seconds(static_cast<double>(copy->bytes), cluster_,
                                          others_that_work(index)),
              rank.times.other_s, 2 * copy->bytes);
      } else if (const auto* start = std::get_if<PhantomStart>(&step->what)) {
        if (rank.now > begin) return push_ready(index);
        begin_messages(index, *start);
        if (cluster_.rank.in_order && !start->in_series && !rank.started.back().done()) {
          rank.waits_for = std::ssize(rank.started) - 1;
          rank.waits_since = rank.now;
          return;
        }
      } else {
        const auto number =
            static_cast<int64_t>(rank.started.size()) - std::get<Wait>(step->what).starts_ago;
        if (!rank.started.at(number).done()) {
          rank.waits_for = number;
          rank.waits_since = rank.now;
          return;
        }
        show(index, *step, rank.now, rank.started[number].bytes);
      }
      pass_step(index);
    }
    rank.times.end_s = rank.now;
  }

  /// The share of the other ranks of its server that work when this one goes on. Ranks of other
  /// replicas do.
  double others_that_work(int index) const {
    const int per_server = cluster_.ranks_per_server;
    if (per_server == 1 || (cluster_.rank.alone == 1 && cluster_.rank.alone_flops == 1)) return 1;
    const int first = index / per_server * per_server;
    int idle = 0;
    for (int other = first; other < std::min(size(), first + per_server); ++other)
      idle += other != index && !works_at(other, ranks_[index].now);
    return 1 - static_cast<double>(idle) / (per_server - 1);
  }

  /// Whether the rank is in an op at this time, or comes to one before it has to wait.
  bool works_at(int index, double now) const {
    const PlayedRank& rank = ranks_[index];
    if (rank.waits_for >= 0 || next_step(index) == nullptr) return false;
    if (rank.now > now) return true;
    const Program& program = programs_[index];
    auto begun = static_cast<int64_t>(rank.started.size());
    size_t first = rank.step;
    for (size_t section = rank.section; section < program.size();) {
      const std::vector<Step>& steps = program[section].steps;
      for (size_t i = first; i < steps.size(); ++i) {
        if (std::holds_alternative<PhantomStart>(steps[i].what)) {
          ++begun;
        } else if (const auto* wait = std::get_if<Wait>(&steps[i].what)) {
          const int64_t number = begun - wait->starts_ago;
          if (number >= std::ssize(rank.started) || !rank.started[number].done()) return false;
        } else if (const auto* op = std::get_if<kernels::OpWork>(&steps[i].what);
                   op == nullptr || op->rows > 0) {
          return true;
        }
      }
      // Where a whole section has neither, its repetitions have neither.
      const bool repeats = first > 0 && rank.time_of_section + 1 < program[section].times;
      if (!repeats) ++section;
      first = 0;
    }
    return false;
  }

  void spend(int index, const Step& step, double seconds, double& sum, int64_t bytes) {
    PlayedRank& rank = ranks_[index];
    const double begin = rank.now;
    rank.now += seconds;
    sum += seconds;
    show(index, step, begin, bytes);
  }

  void show(int index, const Step& step, double begin, int64_t bytes) const {
    if (!on_moment_) return;
    const PlayedRank& rank = ranks_[index];
    const int32_t layer = programs_[index][rank.section].layer;
    on_moment_({index, layer < 0 ? -1 : layer + static_cast<int32_t>(rank.time_of_section), step,
                begin, rank.now, bytes});
  }

  void begin_messages(int index, const PhantomStart& start) {
    PlayedRank& rank = ranks_[index];
    const auto number = static_cast<int64_t>(rank.started.size());
    Started begun{&start, -1};
    if (!start.in_series) {
      int64_t& operations = rank.operations[start.group];
      begun.operation = start.step == 0 ? operations++ : operations - 1;
      if (start.step > 0 && !rank.started.back().done()) {
        begun.after = number - 1;
        rank.started.back().then = number;
      }
    }
    rank.started.push_back(begun);
    if (begun.after < 0) post(index, number, rank.now);
  }

  /// Both sides of each message must have come this far before it moves.
  void post(int index, int64_t number, double now) {
    Started& started = ranks_[index].started[number];
    const PhantomStart& start = *started.start;
    started.begun = true;
    started.open = static_cast<int64_t>(start.sends.size() + start.receives.size());
    for (const PhantomMessage& message : start.receives) started.bytes += message.bytes;
    for (const PhantomMessage& message : start.sends)
      meet(now, {start.group, started.operation, index, message.peer},
           {index, number, message.bytes}, sends_, receives_, start.in_series);
    for (const PhantomMessage& message : start.receives)
      meet(now, {start.group, started.operation, message.peer, index},
           {index, number, message.bytes}, receives_, sends_, start.in_series);
    if (started.open == 0) finished(index, number, now);
  }

  void meet(double now, const Match& match, const Side& side, Sides& own, Sides& others,
            bool in_series) {
    const auto other = others.find(match);
    if (other == others.end()) {
      own[match].push_back(side);
      return;
    }
    const Side there = other->second.front();
    other->second.pop_front();
    if (other->second.empty()) others.erase(other);
    PECIA_CHECK(side.bytes == there.bytes,
                "a message from rank {} to rank {} has {} bytes on one side and {} on the other",
                match.from, match.to, side.bytes, there.bytes);
    const auto bytes = static_cast<double>(side.bytes);
    const comm::LinkLevel level = cluster_.level_between(match.from, match.to);
    const Side& sent = side.rank == match.from ? side : there;
    const double share =
        cluster_.share_of_message(bytes, in_series, level, peers_of(sent, level, in_series));
    const double more_s = cluster_.latency_s(level, in_series) - cluster_.latency_s(level, true);
    const int64_t message = network_.send(now, match.from, match.to, bytes, share, more_s);
    PECIA_CHECK(message == static_cast<int64_t>(sides_.size()), "message {} of {}", message,
                sides_.size());
    sides_.push_back({side, there});
  }

  /// Ranks of other servers to which the sender sends at once.
  int peers_of(const Side& sent, comm::LinkLevel level, bool in_series) const {
    if (in_series || level == comm::LinkLevel::server || !cluster_.efficiency.one_peer) return 1;
    return num_remote_peers(*ranks_[sent.rank].started[sent.number].start, sent.rank, cluster_);
  }

  void arrived(double now, int64_t message) {
    for (const Side& side : {sides_[message].first, sides_[message].second})
      if (--ranks_[side.rank].started[side.number].open == 0) finished(side.rank, side.number, now);
  }

  void finished(int index, int64_t number, double now) {
    PlayedRank& rank = ranks_[index];
    const int64_t then = rank.started[number].then;
    if (then >= 0) post(index, then, now);
    if (rank.waits_for != number) return;
    rank.waits_for = -1;
    rank.now = std::max(rank.now, now);
    rank.times.exposed_comm_s += rank.now - rank.waits_since;
    show(index, *next_step(index), rank.waits_since, rank.started[number].bytes);
    pass_step(index);
    push_ready(index);
  }

  ReplayResult result() const {
    ReplayResult result;
    for (int index = 0; index < size(); ++index) {
      const PlayedRank& rank = ranks_[index];
      PECIA_CHECK(next_step(index) == nullptr,
                  "rank {} waits in {} of layer {} for messages that nobody sends", index,
                  next_step(index)->span, programs_[index][rank.section].layer);
      result.ranks.push_back(rank.times);
      result.seconds = std::max(result.seconds, rank.times.end_s);
    }
    result.played = std::ssize(sides_);
    result.messages = result.played + skipped_messages_;
    return result;
  }

  const std::vector<Program>& programs_;
  const cluster_files::Cluster& cluster_;
  const OnMoment& on_moment_;
  Network network_;
  std::vector<PlayedRank> ranks_;
  std::vector<std::pair<double, int>> ready_;  ///< ranks that go on: a heap, the next one first
  Sides sends_, receives_;                     ///< sides that have not met the other one
  std::vector<std::pair<Side, Side>> sides_;   ///< by message
  std::map<int64_t, int> laps_;      ///< number of ranks, by repetitions that they have done
  int64_t lap_done_ = 0;             ///< that all ranks have done by now, not looked at yet
  std::deque<ReplayState> earlier_;  ///< after repetitions, the latest one first
  bool skipped_ = false;
  int64_t skipped_messages_ = 0;
};

int64_t nanoseconds(double seconds) {
  return std::llround(1e9 * seconds);
}

}  // namespace

int num_remote_peers(const PhantomStart& start, int rank, const cluster_files::Cluster& cluster) {
  std::vector<int> peers;
  for (const PhantomMessage& message : start.sends)
    if (cluster.level_between(rank, message.peer) != comm::LinkLevel::server)
      peers.push_back(message.peer);
  std::ranges::sort(peers);
  return static_cast<int>(std::ranges::distance(peers.begin(), std::ranges::unique(peers).begin()));
}

const RankTimes& ReplayResult::busiest() const {
  return *std::ranges::min_element(ranks, {}, &RankTimes::exposed_comm_s);
}

ReplayResult replay(const std::vector<Program>& programs, const cluster_files::Cluster& cluster,
                    const OnMoment& on_moment) {
  return Replay(programs, cluster, on_moment).run();
}

ReplayResult write_trace(const std::vector<Program>& programs,
                         const cluster_files::Cluster& cluster, const char* phase,
                         const std::filesystem::path& folder) {
  std::vector<report::Recorder> recorders;
  for (size_t rank = 0; rank < programs.size(); ++rank)
    recorders.emplace_back(report::TraceDetail::full);
  const ReplayResult result = replay(programs, cluster, [&](const Moment& moment) {
    const auto* const op = std::get_if<kernels::OpWork>(&moment.step.what);
    const bool waits = std::holds_alternative<Wait>(moment.step.what);
    recorders[moment.rank].add({moment.step.span,
                                waits ? report::Kind::comm : report::Kind::compute, moment.layer, 0,
                                nanoseconds(moment.begin_s), nanoseconds(moment.end_s),
                                moment.bytes, op != nullptr ? op->flops : 0});
  });
  const auto ranks = static_cast<int>(programs.size());
  for (int rank = 0; rank < ranks; ++rank) {
    recorders[rank].add(
        {phase, report::Kind::phase, -1, 0, 0, nanoseconds(result.ranks[rank].end_s), 0, 0});
    report::write_trace(folder / report::trace_file_name(rank),
                        {.rank = rank, .host = cluster.place(rank).server}, recorders[rank]);
  }
  report::tidy_traces(folder, ranks);
  return result;
}

}  // namespace pecia::simulation
