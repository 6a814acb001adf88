// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/replay.hpp"

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>

#include "lib/core/error.hpp"
#include "lib/foresight/network.hpp"
#include "lib/machines/op_time.hpp"

namespace pecia::foresight {
namespace {

using comm::PhantomMessage;
using comm::PhantomStart;

/// Messages that a rank started together.
struct Started {
  const PhantomStart* start;
  int64_t operation;   ///< number of the operation in its group
  int64_t open = 0;    ///< messages that have not arrived yet, in both directions
  int64_t after = -1;  ///< the step before, while it is not done
  int64_t then = -1;   ///< the next step, if it has started already
  int64_t bytes = 0;   ///< received
  bool begun = false;

  bool done() const { return begun && open == 0; }
};

/// A rank on its way through its program.
struct Rank {
  size_t section = 0, step = 0;
  int64_t time_of_section = 0;
  double now = 0;
  int64_t waits_for = -1;  ///< number of what it has started; −1: it goes on at `now`
  double waits_since = 0;
  std::vector<Started> started;
  std::unordered_map<uint64_t, int64_t> operations;  ///< begun so far, by group
  RankTimes times;
};

/// One side of a message: who started it, and its length.
struct Side {
  int rank;
  int64_t number;
  int64_t bytes;
};

/// What says which sent message is which received one: messages of one match arrive in the order
/// sent.
struct Match {
  uint64_t group;
  int64_t operation;  ///< −1: a message of the series
  int from, to;
  bool operator==(const Match&) const = default;
};
struct HashOfMatch {
  size_t operator()(const Match& match) const {
    uint64_t hash = match.group;
    for (const int64_t part : {match.operation, int64_t{match.from}, int64_t{match.to}})
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return hash;
  }
};

class Replay {
 public:
  Replay(const std::vector<Program>& programs, const machines::Cluster& cluster,
         const OnMoment& on_moment)
      : programs_(programs),
        cluster_(cluster),
        on_moment_(on_moment),
        network_(cluster),
        ranks_(programs.size()) {
    for (int rank = 0; rank < size(); ++rank) {
      ranks_[rank].now = ranks_[rank].times.other_s = 1e-6 * cluster.overhead.step_us;
      ready_.push({ranks_[rank].now, rank});
    }
  }

  PassTime run() {
    while (!ready_.empty() || network_.next_change() < Network::never) {
      const double next = ready_.empty() ? Network::never : ready_.top().first;
      if (network_.next_change() <= next) {
        const double now = network_.next_change();
        for (const int64_t message : network_.advance(now)) arrived(now, message);
      } else {
        const int rank = ready_.top().second;
        ready_.pop();
        go_on(rank);
      }
    }
    return result();
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }

  const Step* next_step(int index) const {
    const Rank& rank = ranks_[index];
    if (rank.section == programs_[index].size()) return nullptr;
    return &programs_[index][rank.section].steps[rank.step];
  }

  void pass_step(int index) {
    Rank& rank = ranks_[index];
    const Section& section = programs_[index][rank.section];
    if (++rank.step < section.steps.size()) return;
    rank.step = 0;
    if (++rank.time_of_section < section.times) return;
    rank.time_of_section = 0;
    ++rank.section;
  }

  /// Does the steps of a rank from its time on. A rank runs ahead of the others until it starts
  /// messages, as these must start in the order of time over all ranks: it then comes back.
  void go_on(int index) {
    Rank& rank = ranks_[index];
    const double begin = rank.now;
    while (const Step* step = next_step(index)) {
      if (const auto* op = std::get_if<kernels::OpWork>(&step->what)) {
        const double seconds = op_seconds(*op, cluster_);
        double& sum = op->flops == 0         ? rank.times.other_s
                      : op->name == "linear" ? rank.times.gemm_s
                                             : rank.times.attention_s;
        spend(index, *step, seconds, sum, op->bytes_read + op->bytes_written);
      } else if (const auto* copy = std::get_if<Copy>(&step->what)) {
        spend(index, *step, machines::copy_seconds(static_cast<double>(copy->bytes), cluster_),
              rank.times.other_s, 2 * copy->bytes);
      } else if (const auto* start = std::get_if<PhantomStart>(&step->what)) {
        if (rank.now > begin) return ready_.push({rank.now, index});
        begin_messages(index, *start);
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

  void spend(int index, const Step& step, double seconds, double& sum, int64_t bytes) {
    Rank& rank = ranks_[index];
    const double begin = rank.now;
    rank.now += seconds;
    sum += seconds;
    show(index, step, begin, bytes);
  }

  void show(int index, const Step& step, double begin, int64_t bytes) const {
    if (!on_moment_) return;
    const Rank& rank = ranks_[index];
    const int32_t layer = programs_[index][rank.section].layer;
    on_moment_({index, layer < 0 ? -1 : layer + static_cast<int32_t>(rank.time_of_section), step,
                begin, rank.now, bytes});
  }

  void begin_messages(int index, const PhantomStart& start) {
    Rank& rank = ranks_[index];
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

  using Sides = std::unordered_map<Match, std::deque<Side>, HashOfMatch>;

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
    const auto& shares = cluster_.efficiency;
    const double share = (in_series ? shares.send : shares.collective).of({.bytes = bytes});
    const int64_t message = network_.send(now, match.from, match.to, bytes, share);
    PECIA_CHECK(message == static_cast<int64_t>(sides_.size()), "message {} of {}", message,
                sides_.size());
    sides_.push_back({side, there});
  }

  void arrived(double now, int64_t message) {
    for (const Side& side : {sides_[message].first, sides_[message].second})
      if (--ranks_[side.rank].started[side.number].open == 0) finished(side.rank, side.number, now);
  }

  void finished(int index, int64_t number, double now) {
    Rank& rank = ranks_[index];
    const int64_t then = rank.started[number].then;
    if (then >= 0) post(index, then, now);
    if (rank.waits_for != number) return;
    rank.waits_for = -1;
    rank.now = std::max(rank.now, now);
    rank.times.exposed_comm_s += rank.now - rank.waits_since;
    show(index, *next_step(index), rank.waits_since, rank.started[number].bytes);
    pass_step(index);
    ready_.push({rank.now, index});
  }

  PassTime result() const {
    PassTime time;
    for (int index = 0; index < size(); ++index) {
      const Rank& rank = ranks_[index];
      PECIA_CHECK(next_step(index) == nullptr,
                  "rank {} waits in {} of layer {} for messages that nobody sends", index,
                  next_step(index)->span, programs_[index][rank.section].layer);
      time.ranks.push_back(rank.times);
      time.seconds = std::max(time.seconds, rank.times.end_s);
    }
    time.messages = static_cast<int64_t>(sides_.size());
    return time;
  }

  const std::vector<Program>& programs_;
  const machines::Cluster& cluster_;
  const OnMoment& on_moment_;
  Network network_;
  std::vector<Rank> ranks_;
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>
      ready_;                                 ///< ranks that go on, by time
  Sides sends_, receives_;                    ///< sides that have not met the other one
  std::vector<std::pair<Side, Side>> sides_;  ///< by message
};

}  // namespace

const RankTimes& PassTime::busiest() const {
  return *std::ranges::min_element(ranks, {}, &RankTimes::exposed_comm_s);
}

PassTime replay(const std::vector<Program>& programs, const machines::Cluster& cluster,
                const OnMoment& on_moment) {
  return Replay(programs, cluster, on_moment).run();
}

}  // namespace pecia::foresight
