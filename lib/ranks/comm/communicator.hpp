// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A group of ranks and the operations they do together. The null communicator is rank 0 of 1, so
/// everything above this interface runs, and is tested, without MPI.
///
/// Transfers work on one kind of memory: the host's, or a device's. On a device a transfer begins
/// after the work that the device's stream holds when the transfer is started. After it has been
/// waited for, work that is enqueued on that stream follows the transfer.
///
/// Collectives must be called by every rank of the group in the same order. Counts are bytes.
/// Buffers must not overlap and stay untouched until the transfer is done. Every blocking wait
/// makes the other transfers of the process progress (a transfer of Collectives up to its next
/// exchange). When nothing arrives for `wait_timeout`, the wait throws SystemError naming the
/// operation, its sequence number and the ranks waited for.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/ranks/comm/place.hpp"

namespace pecia::comm {

/// A transfer under way. Wait for it before its buffers are freed. Destroying an unfinished
/// transfer abandons it (after an exception, when the job ends).
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Whether the transfer is done. The call makes it progress and never blocks.
  virtual bool test() = 0;
  virtual void wait() = 0;
  /// Whether the transfer is part of a step's work (device::Stream::begin_step). A mark in the
  /// stream before or after the wait would cut the step.
  virtual bool is_held_back() const { return false; }
};

/// A transfer with nothing left to do.
struct DoneTransfer : Transfer {
  bool test() override { return true; }
  void wait() override {}
};

/// What a communicator has moved since it was made, for reports and for tests against formulas.
struct Traffic {
  /// Point-to-point messages sent to other ranks, including the messages of all_to_all and
  /// exchanges.
  int64_t messages = 0;
  int64_t bytes = 0;  ///< payload of these messages
  /// The same counts by link level. While no places are set, everything counts as
  /// LinkLevel::server.
  std::array<int64_t, num_link_levels> messages_by_level{}, bytes_by_level{};

  Traffic& operator+=(const Traffic& other) {
    messages += other.messages, bytes += other.bytes;
    for (size_t level = 0; level < bytes_by_level.size(); ++level) {
      messages_by_level[level] += other.messages_by_level[level];
      bytes_by_level[level] += other.bytes_by_level[level];
    }
    return *this;
  }
};

/// One rank's part in an all-to-all: the bytes to and from each rank of the group, in rank order.
/// Spans may be empty.
struct Blocks {
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
};

/// A set of messages that start at once: one step of a collective that is built of exchanges.
struct Exchange {
  struct Send {
    std::span<const std::byte> bytes;
    int to;
  };
  struct Receive {
    std::span<std::byte> bytes;
    int from;
  };
  std::vector<Send> sends;
  std::vector<Receive> receives;

  /// "ranks 1, 3": the ranks that this exchange sends to or receives from.
  std::string peers() const;
};

/// The operation that exchanges belong to. The number keeps its messages apart from others; the
/// name is for errors.
struct Operation {
  const char* name;
  int64_t number;
};

/// Shared numbers, 0 at first, that every rank may add to at any time. The calls are not
/// collective.
class SharedCounters {
 public:
  virtual ~SharedCounters() = default;
  /// Adds and returns the value before, in one atomic step: no two ranks see the same.
  virtual int64_t add(int64_t index, int64_t amount) = 0;

  int64_t value(int64_t index) { return add(index, 0); }
};

/// A single shared counter.
class SharedCounter {
 public:
  explicit SharedCounter(std::unique_ptr<SharedCounters> one) : one_(std::move(one)) {}

  int64_t add(int64_t amount) { return one_->add(0, amount); }
  /// Hands out 0, 1, 2, …, each to the rank that asks next.
  int64_t next() { return add(1); }
  int64_t value() { return add(0); }

 private:
  std::unique_ptr<SharedCounters> one_;
};

class Collectives;

/// The order in which a sum over ranks is added up.
enum class SumOrder {
  any,  ///< the fastest order; the result is the same on every rank
  tree  ///< the order that Collectives documents
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Starts sending `send` to rank `to` and receiving exactly `receive.size()` bytes from rank
  /// `from`. If a span is empty, no message goes that way (both sides must agree). Messages between
  /// a pair of ranks arrive in the order sent. They may have any size: a message larger than MPI's
  /// counts is split.
  virtual std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                                       std::span<std::byte> receive, int from) = 0;

  /// Starts exchanging one block with every rank. The block to the rank itself is copied at once.
  virtual std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) = 0;

  /// Returns the number of the next operation that is built of exchanges: 1, 2, … Collective, so
  /// that every rank gives an operation the same number, but no message is sent.
  virtual int64_t next_operation() = 0;

  /// Switches the numbering of operations to the sub-group `team`, whose members all give the same
  /// arguments; its first operation is after + 1. Team 0: all ranks again, whose numbers go on where
  /// they were. Nothing is sent.
  virtual void enter_team(uint64_t team, int64_t after) = 0;

  /// Collective; operations that are collective call it first. Where collectives are checked (see
  /// CollectiveChecks), it throws InvalidArgument on every rank when the ranks' operations differ
  /// in name, number or `shape`. Else it does nothing.
  virtual void check_same(const char* operation, int64_t shape) = 0;

  /// Shows the watch over the ranks that this rank waits for `operation`; null ends the wait.
  virtual void show_wait(const Operation* operation) = 0;

  /// Do the same as the two above for callers that do not measure the wait by themselves, where every
  /// rank of the group starts the same transfers in the same order. So in a step they may be held
  /// back with the ops around them (Transfer::is_held_back).
  virtual std::unique_ptr<Transfer> start_send_receive_in_step(std::span<const std::byte> send,
                                                               int to, std::span<std::byte> receive,
                                                               int from) {
    return start_send_receive(send, to, receive, from);
  }
  virtual std::unique_ptr<Transfer> start_all_to_all_in_step(const Blocks& blocks) {
    return start_all_to_all(blocks);
  }

  /// Starts the messages of one step. None goes to the rank itself, and empty ones do not travel
  /// (both sides must agree). Messages of one pair and operation arrive in the order started,
  /// whatever other operations do. At most 16384 operations may be under way at a time.
  virtual std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                                   const Operation& operation) = 0;

  /// Makes gathers and sums of tensors over this group, which outlives them. The labels are the same
  /// on every rank. If those of servers are all equal or all differ, the route is flat, but for racks.
  virtual std::unique_ptr<Collectives> make_collectives(const RankLabels& labels, SumOrder order);
  std::unique_ptr<Collectives> make_collectives(std::vector<int> server_of_rank, SumOrder order);

  /// Gathers and scatters of Collectives that are made from now on go by servers where their largest
  /// block has at least `bytes` bytes, if the group's tensors travel by NCCL. It is the same on every
  /// rank. Other collectives choose their route by the servers alone.
  virtual void set_least_block_by_servers([[maybe_unused]] int64_t bytes) {}

  /// Collective, for ranks on one server: sums in steps of Collectives that are made from now on go
  /// through peer memory where they have at most `most_bytes`, if the group's tensors travel by NCCL
  /// (one_shot.hpp). Returns why they do not; "" if they do. The same on every rank.
  virtual std::string find_one_shot([[maybe_unused]] int64_t most_bytes) {
    return "tensors do not travel by NCCL";
  }

  /// Whether transfers are enqueued on the device's stream, as ops are. Then the host does not wait
  /// when a transfer starts or is waited for, and transfers of a group follow each other.
  virtual bool on_stream() const { return false; }

  /// The library that moves tensors of a device, for the log: "NCCL 2.28.9, …"; "" for host memory.
  virtual std::string tensors_by() const { return ""; }

  /// The group for host memory: this communicator, or the one it is built on.
  virtual Communicator& on_host() { return *this; }

  /// Where transfers are enqueued on a stream: the ranks of `host` for the same device's memory, by
  /// way of host memory (staged_communicator.hpp).
  virtual std::unique_ptr<Communicator> by_way_of_host(std::unique_ptr<Communicator> host) const;

  /// Every rank gets every rank's bytes, by rank. Sizes may differ and be zero.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;

  /// Every rank's bytes become those of `root`; the size travels too.
  virtual void broadcast(std::vector<std::byte>& bytes, int root) = 0;

  /// Rank `root` gets every rank's bytes, by rank. The others get an empty vector.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) = 0;

  virtual int64_t all_reduce_max(int64_t value) = 0;
  virtual double all_reduce_sum(double value) = 0;
  /// Has no time limit, since replicas with uneven work meet here. The calls that make groups and
  /// counters have none either; the watch over the ranks ends a job that is stuck in one of them.
  virtual void barrier() = 0;

  /// Collective: ranks with equal `color` form a group, ordered by (key, rank).
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Collective: returns this rank's group for `ranks`, an ordered list that contains this rank.
  /// Every member gives the same list, and each rank is in one group only.
  virtual std::unique_ptr<Communicator> part(const std::vector<int>& ranks);

  /// Collective: the ranks on this rank's host, in rank order.
  virtual std::unique_ptr<Communicator> split_by_host() = 0;

  /// Collective; so is destroying the counters, except while an exception is under way. `count` is
  /// the same on every rank.
  virtual std::unique_ptr<SharedCounters> make_counters(int64_t count) = 0;
  std::unique_ptr<SharedCounter> make_counter() {
    return std::make_unique<SharedCounter>(make_counters(1));
  }

  /// Makes transfers progress without waiting, unless it did so a short time ago. Returns whether
  /// it did. The call is cheap: well under a microsecond when no transfer is under way.
  virtual bool progress() = 0;

  /// The time after which a blocking wait fails; zero: never.
  virtual std::chrono::seconds wait_timeout() const = 0;
  /// Sets the limit for this communicator and all that come from the same one.
  virtual void set_wait_timeout(std::chrono::seconds timeout) = 0;

  /// Sets the places of the group's ranks, by rank. From now on traffic is counted by level. A
  /// split does not inherit them.
  virtual void set_places(const std::vector<RackServerGpu>& by_rank) = 0;
  virtual Traffic traffic() const = 0;
};

/// Rank 0 of 1: collectives are identities, and a message to itself is a copy.
std::unique_ptr<Communicator> make_null_communicator();

}  // namespace pecia::comm
